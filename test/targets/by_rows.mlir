// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=vulkan:lavapipe}' %s | filecheck %s
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=vulkan:lavapipe prefer=tiled}' %s | filecheck --check-prefix=ONE %s
// A dynamic number of rows: one dispatch of an executable whose exports hand on to the next one where rows are too many.

// ONE-NOT: fallback(

// CHECK: hal.executable.source private @matmul_product_0
// CHECK: hal.executable.export public @matmul_product_0 ordinal(0)
// CHECK-SAME: condition(%{{.*}}: !hal.device, %{{.*}}: index) -> i1
// CHECK: arith.cmpi ule
// CHECK: } fallback(@matmul_product_0_above_{{[0-9]+}}) count(
// CHECK: hal.executable.export public @matmul_product_0_above_{{[0-9]+}} ordinal(1)
// CHECK: func.func @matmul_product_0() attributes
// CHECK: func.func @matmul_product_0_above_{{[0-9]+}}() attributes
// CHECK: func.func @matmul(
// CHECK: flow.dispatch @matmul_product_0::@matmul_product_0[
// CHECK-NOT: flow.dispatch
// CHECK-NOT: linalg.generic
func.func @matmul(%x: tensor<?x64xi8>, %w: tensor<2048x64xi8>) -> tensor<?x2048xi32> {
  %zero = arith.constant 0 : i32
  %first = arith.constant 0 : index
  %m = tensor.dim %x, %first : tensor<?x64xi8>
  %empty = tensor.empty(%m) : tensor<?x2048xi32>
  %o = linalg.fill ins(%zero : i32) outs(%empty : tensor<?x2048xi32>) -> tensor<?x2048xi32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%x, %w : tensor<?x64xi8>, tensor<2048x64xi8>) outs(%o : tensor<?x2048xi32>) {
  ^bb0(%p: i8, %q: i8, %acc: i32):
    %a = arith.extsi %p : i8 to i32
    %b = arith.extsi %q : i8 to i32
    %c = arith.muli %a, %b : i32
    %t = arith.addi %acc, %c : i32
    linalg.yield %t : i32
  } -> tensor<?x2048xi32>
  return %r : tensor<?x2048xi32>
}
