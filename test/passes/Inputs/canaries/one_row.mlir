// A single token for four experts: its row is the same in each group.
func.func @main(%x: tensor<1x4096xi8>, %w: tensor<5x4096x4xi8>, %ids: tensor<1x4xi32>) -> tensor<1x4x4xf32> {
  %0 = "qmlir.grouped_matmul"(%x, %w, %ids) {operand_names = ["lhs", "rhs", "expert_ids"]}
      : (tensor<1x4096xi8>, tensor<5x4096x4xi8>, tensor<1x4xi32>) -> tensor<1x4x4xf32>
  return %0 : tensor<1x4x4xf32>
}
