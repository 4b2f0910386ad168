util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<2x3xi8>
util.global private @s = #flow.parameter.named<"model"::"s"> : tensor<f32>
func.func @main(%x: tensor<4x2xi8>) -> tensor<4x3xf32> {
  %w = util.global.load @w : tensor<2x3xi8>
  %s = util.global.load @s : tensor<f32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  } : (tensor<4x2xi8>, tensor<2x3xi8>, tensor<f32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
