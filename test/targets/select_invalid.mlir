// RUN: not qmlir-opt --pass-pipeline='qmlir-select{target=rocm:gfx942}' %s 2>&1 | filecheck %s
// A kind of fp8 that nothing converts. Every strategy's reason is listed, at the op's place.

// CHECK: :9:8: error: no strategy of rocm:gfx942 compiles this matmul
// CHECK: mma: rocm:gfx942 has no matrix instruction for f8E4M3B11FNUZ x f8E4M3B11FNUZ -> f32
// CHECK: stock: rocm:gfx942 has no f8E4M3B11FNUZ arithmetic
// CHECK-SAME: f8E4M3FNUZ
func.func @matmul(%x: tensor<16x64xf8E4M3B11FNUZ>, %w: tensor<64x32xf8E4M3B11FNUZ>, %o: tensor<16x32xf32>) -> tensor<16x32xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<16x64xf8E4M3B11FNUZ>, tensor<64x32xf8E4M3B11FNUZ>) outs(%o : tensor<16x32xf32>) -> tensor<16x32xf32>
  return %r : tensor<16x32xf32>
}
