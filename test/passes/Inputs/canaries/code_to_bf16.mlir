// i8 codes converted to bf16.
func.func @main(%x: tensor<64xi8>) -> tensor<64xbf16> {
  %e = tensor.empty() : tensor<64xbf16>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xi8>) outs(%e : tensor<64xbf16>) {
  ^bb0(%a: i8, %b: bf16):
    %1 = arith.sitofp %a : i8 to bf16
    linalg.yield %1 : bf16
  } -> tensor<64xbf16>
  return %0 : tensor<64xbf16>
}
