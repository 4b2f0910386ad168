// RUN: not qmlir-opt --pass-pipeline='qmlir-select{target=rocm:gfx942}' %s 2>&1 | filecheck %s
// fp8 of the other kind: gfx942 has FNUZ. Every strategy's reason is listed, at the op's place.

// CHECK: :9:8: error: no strategy of rocm:gfx942 compiles this matmul
// CHECK: mma: rocm:gfx942 has no matrix instruction for f8E4M3FN x f8E4M3FN -> f32
// CHECK: stock: rocm:gfx942 has no f8E4M3FN arithmetic
// CHECK-SAME: f8E4M3FNUZ
func.func @matmul(%x: tensor<16x64xf8E4M3FN>, %w: tensor<64x32xf8E4M3FN>, %o: tensor<16x32xf32>) -> tensor<16x32xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<16x64xf8E4M3FN>, tensor<64x32xf8E4M3FN>) outs(%o : tensor<16x32xf32>) -> tensor<16x32xf32>
  return %r : tensor<16x32xf32>
}
