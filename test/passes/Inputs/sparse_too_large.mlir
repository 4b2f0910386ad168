func.func @f(%lhs: tensor<2x1048576xi8>, %values: tensor<9xi8>, %indices: tensor<2x9xi32>) -> tensor<2x1048576xi32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "coo", rhs_shape = array<i64: 1048576, 1048576>,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x1048576xi8>, tensor<9xi8>, tensor<2x9xi32>) -> tensor<2x1048576xi32>
  return %0 : tensor<2x1048576xi32>
}
