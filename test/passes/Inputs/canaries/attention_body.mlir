// Attention with a body that bounds the scores by tanh.
func.func @main(%q: tensor<1x4x8xf32>, %k: tensor<1x6x8xf32>, %v: tensor<1x6x8xf32>) -> tensor<1x4x8xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<1x4x8xf32>
  %0 = iree_linalg_ext.attention <{indexing_maps = [affine_map<(b, m, n, d, k) -> (b, m, d)>,
      affine_map<(b, m, n, d, k) -> (b, k, d)>, affine_map<(b, m, n, d, k) -> (b, k, n)>,
      affine_map<(b, m, n, d, k) -> ()>, affine_map<(b, m, n, d, k) -> (b, m, n)>]}>
      ins(%q, %k, %v, %one : tensor<1x4x8xf32>, tensor<1x6x8xf32>, tensor<1x6x8xf32>, f32) outs(%e : tensor<1x4x8xf32>) {
  ^bb0(%s: f32):
    %1 = math.tanh %s : f32
    iree_linalg_ext.yield %1 : f32
  } -> tensor<1x4x8xf32>
  return %0 : tensor<1x4x8xf32>
}
