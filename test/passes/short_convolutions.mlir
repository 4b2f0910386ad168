// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-short-convolutions{target=cpu:x86-64-v4}' | filecheck %s --check-prefixes=CHECK,CPU
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-short-convolutions{target=cuda:sm_80}' | filecheck %s --check-prefixes=CHECK,GPU

// Patches of the image, the channels of a pixel one behind the other, by the filters; the bias is added in f32.
// CHECK-LABEL: func.func @short(
// CPU: util.optimization_barrier {{.*}} : tensor<1x9x9x4xbf16>
// CPU-NOT: linalg.conv_2d
// CPU: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins({{.*}} : tensor<49x36xbf16>, tensor<5x36xbf16>)
// CPU: arith.addf {{.*}} : f32
// CPU: tensor<1x5x7x7xf32>
// GPU: linalg.conv_2d_nchw_fchw
func.func @short(%x: tensor<1x4x9x9xbf16>, %w: tensor<5x4x3x3xbf16>, %b: tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32> {
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x9x9xbf16>, tensor<5x4x3x3xbf16>) outs(%b : tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32>
  return %y : tensor<1x5x7x7xf32>
}

// -----

// CHECK-LABEL: func.func @of_f32(
// CHECK: linalg.conv_2d_nchw_fchw
func.func @of_f32(%x: tensor<1x4x9x9xf32>, %w: tensor<5x4x3x3xf32>, %b: tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32> {
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x9x9xf32>, tensor<5x4x3x3xf32>) outs(%b : tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32>
  return %y : tensor<1x5x7x7xf32>
}

// -----

// Patches of 1 GiB.
// CHECK-LABEL: func.func @large(
// CHECK: linalg.conv_2d_nchw_fchw
func.func @large(%x: tensor<?x128x514x514xbf16>, %w: tensor<5x128x3x3xbf16>, %b: tensor<?x5x512x512xf32>) -> tensor<?x5x512x512xf32> {
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<?x128x514x514xbf16>, tensor<5x128x3x3xbf16>) outs(%b : tensor<?x5x512x512xf32>) -> tensor<?x5x512x512xf32>
  return %y : tensor<?x5x512x512xf32>
}
