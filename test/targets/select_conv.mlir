// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:znver4}' %s | filecheck %s --check-prefix=CPU
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=rocm:gfx942}' %s | filecheck %s --check-prefix=ROCM
// A CPU gets a matmul of patches, which data tiling takes to VNNI; ROCm has an implicit GEMM of its own.

// CPU-NOT: linalg.conv_2d
// CPU: util.optimization_barrier
// CPU: arith.muli
// ROCM: linalg.conv_2d_nhwc_fhwc
func.func @conv(%x: tensor<1x10x10x16xi8>, %w: tensor<32x3x3x16xi8>, %o: tensor<1x8x8x32xi32>) -> tensor<1x8x8x32xi32> {
  %r = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x10x10x16xi8>, tensor<32x3x3x16xi8>) outs(%o : tensor<1x8x8x32xi32>) -> tensor<1x8x8x32xi32>
  return %r : tensor<1x8x8x32xi32>
}
