// A product by a constant of equal elements.
func.func @main(%x: tensor<64x64xf16>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<0.5> : tensor<64x64xf16>
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x64xf16>, tensor<64x64xf16>)
      outs(%f : tensor<64x64xf32>) {
  ^bb0(%a: f16, %b1: f16, %acc: f32):
    %1 = arith.extf %a : f16 to f32
    %2 = arith.extf %b1 : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
