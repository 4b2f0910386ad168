// Sums along the last axis of `[a, b, c, k]`, with the result transposed to `[c, a, b]`.
func.func @main(%x: tensor<8x8x2x3xf32>) -> tensor<2x8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(a, b, c, k) -> (a, b, c, k)>, affine_map<(a, b, c, k) -> (c, a, b)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x : tensor<8x8x2x3xf32>) outs(%f : tensor<2x8x8xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %1 = arith.addf %acc, %in : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x8xf32>
  return %0 : tensor<2x8x8xf32>
}
