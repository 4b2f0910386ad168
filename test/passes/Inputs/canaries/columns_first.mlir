// An f16 convolution whose parallel loops are (row, column, filter) and whose result is `[filter, row, column]`.
func.func @main(%x: tensor<2x6x6xf16>, %w: tensor<4x2x3x3xf16>) -> tensor<4x4x4xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4x4xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x4x4xf32>) -> tensor<4x4x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(h, w, f, c, r, s) -> (c, h + r, w + s)>,
      affine_map<(h, w, f, c, r, s) -> (f, c, r, s)>, affine_map<(h, w, f, c, r, s) -> (f, h, w)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x6x6xf16>, tensor<4x2x3x3xf16>) outs(%f : tensor<4x4x4xf32>) {
  ^bb0(%a: f16, %b: f16, %acc: f32):
    %1 = arith.extf %a : f16 to f32
    %2 = arith.extf %b : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x4x4xf32>
  return %0 : tensor<4x4x4xf32>
}
