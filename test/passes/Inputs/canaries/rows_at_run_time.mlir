// A sparse weight that is known at run time.
func.func @main(%x: tensor<4x64xi8>, %v: tensor<20xi8>, %i: tensor<20xi32>, %p: tensor<9xi32>) -> tensor<4x8xi32> {
  %0 = "qmlir.sparse_matmul"(%x, %v, %i, %p) {format = "csr", rhs_shape = array<i64: 8, 64>, rhs_transposed = true,
      operand_names = ["lhs", "values", "indices", "indptr"]}
      : (tensor<4x64xi8>, tensor<20xi8>, tensor<20xi32>, tensor<9xi32>) -> tensor<4x8xi32>
  return %0 : tensor<4x8xi32>
}
