// f32 values rounded to f8E4M3FN.
func.func @main(%x: tensor<64xf32>) -> tensor<64xf8E4M3FN> {
  %e = tensor.empty() : tensor<64xf8E4M3FN>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf8E4M3FN>) {
  ^bb0(%a: f32, %o: f8E4M3FN):
    %1 = arith.truncf %a : f32 to f8E4M3FN
    linalg.yield %1 : f8E4M3FN
  } -> tensor<64xf8E4M3FN>
  return %0 : tensor<64xf8E4M3FN>
}
