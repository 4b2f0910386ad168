// A convolution by groups of channels, with one window along the width.
func.func @main(%x: tensor<1x4x3x2x3xf32>, %w: tensor<2x5x3x3x3xf32>) -> tensor<1x2x1x2x5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2x1x2x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2x1x2x5xf32>) -> tensor<1x2x1x2x5xf32>
  %r = linalg.conv_2d_nhwgc_gfhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x3x2x3xf32>, tensor<2x5x3x3x3xf32>) outs(%f : tensor<1x2x1x2x5xf32>)
      -> tensor<1x2x1x2x5xf32>
  return %r : tensor<1x2x1x2x5xf32>
}
