// A product whose rows and columns are fewer than a tile has, something added to it, and a function with branches.
func.func @main(%x: tensor<3x2xf32>, %w: tensor<2x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x4xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
  %p = linalg.matmul ins(%x, %w : tensor<3x2xf32>, tensor<2x4xf32>) outs(%f : tensor<3x4xf32>) -> tensor<3x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%p, %y : tensor<3x4xf32>, tensor<3x4xf32>) outs(%e : tensor<3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %1 = arith.addf %a, %b : f32
    %2 = math.tanh %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
