// A product whose result is masked.
func.func @main(%x: tensor<16x32xf32>, %w: tensor<32x16xf32>, %keep: tensor<16x16xi1>) -> tensor<16x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x16xf32>) -> tensor<16x16xf32>
  %p = linalg.matmul ins(%x, %w : tensor<16x32xf32>, tensor<32x16xf32>) outs(%f : tensor<16x16xf32>)
      -> tensor<16x16xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%p, %keep : tensor<16x16xf32>, tensor<16x16xi1>) outs(%e : tensor<16x16xf32>) {
  ^bb0(%a: f32, %k: i1, %out: f32):
    %1 = arith.select %k, %a, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}
