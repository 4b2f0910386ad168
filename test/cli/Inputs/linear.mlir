// u8 activations, int8 weights, a named argument.
func.func @main(%x: tensor<?x4xi8> {qmlir.dtype = "u8", qmlir.name = "x"}) -> tensor<?x2xf32> {
  %w = arith.constant dense<[[1, -2], [3, -4], [5, -6], [127, -128]]> : tensor<4x2xi8>
  %s = arith.constant dense<0.5> : tensor<f32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s) {
    operand_names = ["lhs", "rhs", "lhs_scale"], lhs_dtype = "u8"
  } : (tensor<?x4xi8>, tensor<4x2xi8>, tensor<f32>) -> tensor<?x2xf32>
  return %0 : tensor<?x2xf32>
}

// Two results, and no argument.
func.func @two() -> (tensor<2xi32>, tensor<3xi8> {qmlir.dtype = "u8"}) {
  %a = arith.constant dense<[7, -7]> : tensor<2xi32>
  %b = arith.constant dense<[0, 1, -1]> : tensor<3xi8>
  return %a, %b : tensor<2xi32>, tensor<3xi8>
}
