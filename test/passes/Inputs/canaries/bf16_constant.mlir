// A small constant of bf16 in a dispatch.
func.func @main(%x: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %c = arith.constant dense<[1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xbf16>
  %e = tensor.empty() : tensor<4x8xbf16>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %c : tensor<4x8xbf16>, tensor<8xbf16>) outs(%e : tensor<4x8xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %1 = arith.addf %a, %b : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}
