// A convolution with two groups of eight filters over two images. Its accumulator starts from a reshaped bias.
func.func @main(%x: tensor<2x2x4x8x8xf32>, %w: tensor<2x8x4x3x3xf32>, %b: tensor<16xf32>) -> tensor<2x2x8x6x6xf32> {
  %e = tensor.empty() : tensor<2x16x6x6xf32>
  %all = linalg.broadcast ins(%b : tensor<16xf32>) outs(%e : tensor<2x16x6x6xf32>) dimensions = [0, 2, 3]
  %f = tensor.expand_shape %all [[0], [1, 2], [3], [4]] output_shape [2, 2, 8, 6, 6]
      : tensor<2x16x6x6xf32> into tensor<2x2x8x6x6xf32>
  %0 = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x2x4x8x8xf32>, tensor<2x8x4x3x3xf32>) outs(%f : tensor<2x2x8x6x6xf32>)
      -> tensor<2x2x8x6x6xf32>
  return %0 : tensor<2x2x8x6x6xf32>
}
