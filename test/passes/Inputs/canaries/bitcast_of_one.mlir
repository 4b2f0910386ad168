// `tensor.bitcast` of a tensor with one element, which is broadcast.
func.func @main(%x: tensor<1xi32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = tensor.bitcast %x : tensor<1xi32> to tensor<1xf32>
  %e = tensor.empty() : tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(i) -> (0)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%0, %y : tensor<1xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %2 = arith.addf %a, %b : f32
    linalg.yield %2 : f32
  } -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
