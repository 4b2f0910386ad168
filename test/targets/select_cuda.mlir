// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cuda:sm_80 prefer=exact-f16}' %s | filecheck %s
// int8 on f16 tensor cores: K = 2048 is split into two chunks of 1024, whose sums are exact, and are added in i32.

// CHECK-LABEL: func.func @matmul
// CHECK: tensor.expand_shape
// CHECK: arith.sitofp {{.*}} : i8 to f16
// CHECK: ins({{.*}} : tensor<16x2x1024xf16>, tensor<32x2x1024xf16>)
// CHECK-SAME: tensor<2x16x32xf32>
// CHECK-SAME: compilation_info
// CHECK: arith.fptosi {{.*}} : f32 to i32
// CHECK: arith.addi
// CHECK: -> tensor<16x32xi32>
func.func @matmul(%x: tensor<16x2048xi8>, %w: tensor<32x2048xi8>, %o: tensor<16x32xi32>) -> tensor<16x32xi32> {
  %r = linalg.generic {
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%x, %w : tensor<16x2048xi8>, tensor<32x2048xi8>) outs(%o : tensor<16x32xi32>) {
  ^bb0(%p: i8, %q: i8, %acc: i32):
    %a = arith.extsi %p : i8 to i32
    %b = arith.extsi %q : i8 to i32
    %c = arith.muli %a, %b : i32
    %t = arith.addi %acc, %c : i32
    linalg.yield %t : i32
  } -> tensor<16x32xi32>
  return %r : tensor<16x32xi32>
}
