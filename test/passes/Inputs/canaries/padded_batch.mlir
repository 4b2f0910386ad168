// `(x[b, m, k] * s[b, m]) @ w[b, k, n]`: three rows are padded to four, and the second product reads another place.
func.func @main(%x: tensor<2x3x8xf32>, %s: tensor<2x3xf32>, %w: tensor<2x8x4xf32>) -> tensor<2x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3x8xf32>
  %scaled = linalg.generic {indexing_maps = [affine_map<(b, m, k) -> (b, m, k)>, affine_map<(b, m, k) -> (b, m)>,
      affine_map<(b, m, k) -> (b, m, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<2x3x8xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x8xf32>
  %o = tensor.empty() : tensor<2x3x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %y = linalg.batch_matmul ins(%scaled, %w : tensor<2x3x8xf32>, tensor<2x8x4xf32>)
      outs(%f : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}
