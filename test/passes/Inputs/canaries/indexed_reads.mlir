// Tokens of a dynamic number, each for two experts: rows are sorted by what loops read by index.
func.func @main(%x: tensor<?x64xf32>, %w: tensor<3x64x48xf32>, %ids: tensor<?x2xi32>) -> tensor<?x2x48xf32> {
  %0 = "qmlir.grouped_matmul"(%x, %w, %ids) {operand_names = ["lhs", "rhs", "expert_ids"]}
      : (tensor<?x64xf32>, tensor<3x64x48xf32>, tensor<?x2xi32>) -> tensor<?x2x48xf32>
  return %0 : tensor<?x2x48xf32>
}
