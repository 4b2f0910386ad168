// A sort that is a network of stages.
func.func @main(%x: tensor<256xf32>) -> tensor<256xf32> {
  %0 = iree_linalg_ext.sort dimension(0) outs(%x : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<256xf32>
  return %0 : tensor<256xf32>
}
