// A product of bf16, which SPIR-V has no arithmetic for.
func.func @main(%x: tensor<1x72xbf16>, %w: tensor<4x72xbf16>) -> tensor<1x4xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) {rhs_transposed = true, operand_names = ["lhs", "rhs"]}
      : (tensor<1x72xbf16>, tensor<4x72xbf16>) -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}
