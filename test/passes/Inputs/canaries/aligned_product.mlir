// A product of ragged sizes whose scales are of groups along K.
func.func @main(%x: tensor<30x128xi8>, %w: tensor<40x128xi8>, %s: tensor<40x4xf32>) -> tensor<30x40xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {rhs_transposed = true, operand_names = ["lhs", "rhs", "rhs_scale"]}
      : (tensor<30x128xi8>, tensor<40x128xi8>, tensor<40x4xf32>) -> tensor<30x40xf32>
  return %0 : tensor<30x40xf32>
}
