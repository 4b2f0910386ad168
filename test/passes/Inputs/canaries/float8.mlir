// A conversion of one-byte floats.
func.func @main(%x: tensor<64xf8E4M3FN>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}
      ins(%x : tensor<64xf8E4M3FN>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f32):
    %1 = arith.extf %a : f8E4M3FN to f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
