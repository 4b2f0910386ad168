// RUN: qmlir-opt --pass-pipeline='qmlir-bound-unit-sums' %s | filecheck %s
// The hidden size of a product with `qmlir.unit_sum` is bounded by 1; that of another product is unchanged.

// CHECK-LABEL: func.func @scores
// CHECK: %[[SIZE:.*]] = iree_tensor_ext.dispatch.workload.ordinal %{{.*}}, 0
// CHECK: %[[BOUND:.*]] = util.assume.int %[[SIZE]]<umin = 0, umax = 1> : index
// CHECK: dispatch.tensor.load %{{.*}}, offsets = [0, 0, 0], sizes = [%{{.*}}, 5, 16]
// CHECK-LABEL: func.func @other
// CHECK-NOT: util.assume.int

#lhs = affine_map<(m, n, o, k) -> (o, m, k)>
#rhs = affine_map<(m, n, o, k) -> (o, n, k)>
#out = affine_map<(m, n, o, k) -> (m, n)>
#translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1]>
#unit = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{qmlir.unit_sum}>, translation_info = #translation>
#none = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{}>, translation_info = #translation>
func.func @scores(%s: index, %a: !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x5x16xf32>>, %c: tensor<5x5xf32>)
    -> tensor<5x5xf32> {
  %o = iree_tensor_ext.dispatch.workload.ordinal %s, 0 : index
  %x = iree_tensor_ext.dispatch.tensor.load %a, offsets = [0, 0, 0], sizes = [%o, 5, 16], strides = [1, 1, 1]
      : !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x5x16xf32>>{%o} -> tensor<?x5x16xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %x : tensor<?x5x16xf32>, tensor<?x5x16xf32>) outs(%c : tensor<5x5xf32>) attrs = {compilation_info = #unit} {
  ^bb0(%p: f32, %q: f32, %acc: f32):
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<5x5xf32>
  return %r : tensor<5x5xf32>
}
func.func @other(%s: index, %a: !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x5x16xf32>>, %c: tensor<5x5xf32>)
    -> tensor<5x5xf32> {
  %o = iree_tensor_ext.dispatch.workload.ordinal %s, 0 : index
  %x = iree_tensor_ext.dispatch.tensor.load %a, offsets = [0, 0, 0], sizes = [%o, 5, 16], strides = [1, 1, 1]
      : !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x5x16xf32>>{%o} -> tensor<?x5x16xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %x : tensor<?x5x16xf32>, tensor<?x5x16xf32>) outs(%c : tensor<5x5xf32>) attrs = {compilation_info = #none} {
  ^bb0(%p: f32, %q: f32, %acc: f32):
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %acc, %t : f32
    linalg.yield %u : f32
  } -> tensor<5x5xf32>
  return %r : tensor<5x5xf32>
}
