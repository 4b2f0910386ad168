// A sort of 64 keys with indices. Only the sorted indices are used.
func.func @main(%keys: tensor<64xf32>, %places: tensor<64xi32>) -> tensor<64xi32> {
  %r:2 = iree_linalg_ext.sort dimension(0) outs(%keys, %places : tensor<64xf32>, tensor<64xi32>) {
    ^bb0(%a: f32, %b: f32, %i: i32, %j: i32):
      %less = arith.cmpf olt, %a, %b : f32
      iree_linalg_ext.yield %less : i1
  } -> tensor<64xf32>, tensor<64xi32>
  return %r#1 : tensor<64xi32>
}
