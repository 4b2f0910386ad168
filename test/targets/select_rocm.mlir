// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=rocm:gfx942}' %s | filecheck %s
// Dynamic rows are padded, the module states its device, and the magnitudes are dropped.

// CHECK-DAG: padding = [
// CHECK-DAG: MFMA_I32_16x16x32_I8
// CHECK-DAG: hal.device.targets
// CHECK-LABEL: func.func @matmul
// CHECK: linalg.generic
// CHECK-NOT: qmlir.rhs_magnitude
// CHECK: compilation_info
func.func @matmul(%x: tensor<?x512xi8>, %w: tensor<256x512xi8>, %o: tensor<?x256xi32>) -> tensor<?x256xi32> {
  %r = linalg.generic {
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%x, %w : tensor<?x512xi8>, tensor<256x512xi8>) outs(%o : tensor<?x256xi32>)
    attrs = {qmlir.rhs_magnitude = 8 : i64} {
  ^bb0(%p: i8, %q: i8, %acc: i32):
    %a = arith.extsi %p : i8 to i32
    %b = arith.extsi %q : i8 to i32
    %c = arith.muli %a, %b : i32
    %t = arith.addi %acc, %c : i32
    linalg.yield %t : i32
  } -> tensor<?x256xi32>
  return %r : tensor<?x256xi32>
}
