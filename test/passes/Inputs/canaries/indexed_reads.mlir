// A dynamic number of tokens, each routed to two experts. Loops read by index the tensors that sort rows by expert.
func.func @main(%x: tensor<?x64xf32>, %w: tensor<3x64x48xf32>, %ids: tensor<?x2xi32>) -> tensor<?x2x48xf32> {
  %0 = "qmlir.grouped_matmul"(%x, %w, %ids) {operand_names = ["lhs", "rhs", "expert_ids"]}
      : (tensor<?x64xf32>, tensor<3x64x48xf32>, tensor<?x2xi32>) -> tensor<?x2x48xf32>
  return %0 : tensor<?x2x48xf32>
}
