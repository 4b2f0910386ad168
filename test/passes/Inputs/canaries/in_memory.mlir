// A product of floats and codes.
func.func @main(%x: tensor<36x72xf16>, %w: tensor<4x72xi8>) -> tensor<36x4xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) {rhs_transposed = true, operand_names = ["lhs", "rhs"]}
      : (tensor<36x72xf16>, tensor<4x72xi8>) -> tensor<36x4xf32>
  return %0 : tensor<36x4xf32>
}
