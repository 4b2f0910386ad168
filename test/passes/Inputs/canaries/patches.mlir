// A convolution of a dynamic number of images.
func.func @main(%x: tensor<?x8x8x16xi8>, %w: tensor<32x3x3x16xi8>) -> tensor<?x6x6x32xf32> {
  %0 = "qmlir.conv2d_q"(%x, %w) {operand_names = ["input", "weight"]}
      : (tensor<?x8x8x16xi8>, tensor<32x3x3x16xi8>) -> tensor<?x6x6x32xf32>
  return %0 : tensor<?x6x6x32xf32>
}
