func.func @main(%x: tensor<4x8xi8>, %w: tensor<8x16xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"]
  } : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}
