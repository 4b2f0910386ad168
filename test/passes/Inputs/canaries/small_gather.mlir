// A scale of each row is read by its place in the rows of a group, behind the product.
func.func @main(%x: tensor<?x64xi8>, %w: tensor<3x64x48xi8>, %sizes: tensor<3xi32>, %s: tensor<?x1xf32>)
    -> tensor<?x48xf32> {
  %0 = "qmlir.grouped_matmul"(%x, %w, %sizes, %s) {operand_names = ["lhs", "rhs", "group_sizes", "lhs_scale"]}
      : (tensor<?x64xi8>, tensor<3x64x48xi8>, tensor<3xi32>, tensor<?x1xf32>) -> tensor<?x48xf32>
  return %0 : tensor<?x48xf32>
}
