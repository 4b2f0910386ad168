// A constant CSR weight of [K, N]: 7 and 9 in its row 0, -2 in row 2.
func.func @main(%x: tensor<?x4xi8>) -> tensor<?x3xi32> {
  %values = arith.constant dense<[7, 9, -2]> : tensor<3xi8>
  %indices = arith.constant dense<[0, 2, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 2, 3, 3]> : tensor<5xi32>
  %y = "qmlir.sparse_matmul"(%x, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  } : (tensor<?x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<?x3xi32>
  return %y : tensor<?x3xi32>
}
