// A batch of products of a dynamic number of rows, whose zero points need the sums of the rows.
func.func @main(%x: tensor<2x?x7xi8>, %w: tensor<2x7x9xi8>, %z: tensor<2x1x9xi8>) -> tensor<2x?x9xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w, %z) {rhs_zero_mode = "int", operand_names = ["lhs", "rhs", "rhs_zero_point"]}
      : (tensor<2x?x7xi8>, tensor<2x7x9xi8>, tensor<2x1x9xi8>) -> tensor<2x?x9xf32>
  return %0 : tensor<2x?x9xf32>
}
