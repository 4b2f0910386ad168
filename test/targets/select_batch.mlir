// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=rocm:gfx942}' %s | filecheck %s
// IREE 3.13 would drop the masks of the padded rows behind a batch axis: a sum of one term is added in front of it.
// Whole tiles have no masks, and IREE keeps the masks if there is no batch axis.

// CHECK-DAG: padding = [1, 32, 64, 1, 16], promote_operands = [0, 1], qmlir.unit_sum
// CHECK-DAG: #[[LHS:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d3, d0, d1, d4)>
// CHECK-DAG: #[[RHS:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d3, d0, d2, d4)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>
#lhs = affine_map<(b, m, n, k) -> (b, m, k)>
#rhs = affine_map<(b, m, n, k) -> (b, n, k)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>

// CHECK-LABEL: func.func @scores
// CHECK: %[[ONE:.*]] = util.optimization_barrier %{{.*}} : index
// CHECK: flow.tensor.reshape %arg0 : tensor<2x?x16xf32>{{.*}} -> tensor<?x2x?x16xf32>{%[[ONE]], %{{.*}}}
// CHECK: flow.tensor.reshape %arg1 : tensor<2x?x16xf32>{{.*}} -> tensor<?x2x?x16xf32>{%[[ONE]], %{{.*}}}
// CHECK: indexing_maps = [#[[LHS]], #[[RHS]], #[[OUT]]], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
func.func @scores(%q: tensor<2x?x16xf32>, %k: tensor<2x?x16xf32>, %o: tensor<2x?x?xf32>) -> tensor<2x?x?xf32> {
  %r = linalg.batch_matmul indexing_maps = [#lhs, #rhs, #out] ins(%q, %k : tensor<2x?x16xf32>, tensor<2x?x16xf32>)
      outs(%o : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  return %r : tensor<2x?x?xf32>
}

// CHECK-LABEL: func.func @whole_tiles
// CHECK-NOT: flow.tensor.reshape
func.func @whole_tiles(%q: tensor<2x64x16xf32>, %k: tensor<2x64x16xf32>, %o: tensor<2x64x64xf32>) -> tensor<2x64x64xf32> {
  %r = linalg.batch_matmul indexing_maps = [#lhs, #rhs, #out] ins(%q, %k : tensor<2x64x16xf32>, tensor<2x64x16xf32>)
      outs(%o : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  return %r : tensor<2x64x64xf32>
}

// CHECK-LABEL: func.func @no_batch
// CHECK-NOT: flow.tensor.reshape
func.func @no_batch(%x: tensor<?x16xf32>, %w: tensor<16x64xf32>, %o: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x64xf32>) outs(%o : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
