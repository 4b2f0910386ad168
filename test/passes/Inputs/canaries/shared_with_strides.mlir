// A tensor with two readers: one reads every other element, the other all of them.
func.func @main(%x: tensor<64xf32>) -> tensor<96xf32> {
  %zero = arith.constant 0.0 : f32
  %whole = tensor.empty() : tensor<64xf32>
  %positive = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<64xf32>) outs(%whole : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %zero : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %half = tensor.empty() : tensor<32xf32>
  %even = linalg.generic {indexing_maps = [affine_map<(i) -> (i * 2)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%positive : tensor<64xf32>) outs(%half : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<32xf32>
  %both = tensor.concat dim(0) %even, %positive : (tensor<32xf32>, tensor<64xf32>) -> tensor<96xf32>
  return %both : tensor<96xf32>
}
