// Four 3 x 3 filters over an image `[channel, row, column]`: channels are first in the image and last in the filters.
func.func @main(%x: tensor<2x6x6xi8>, %w: tensor<4x3x3x2xi8>) -> tensor<4x4x4xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<4x4x4xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<4x4x4xi32>) -> tensor<4x4x4xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(h, w, f, r, s, c) -> (c, h + r, w + s)>,
      affine_map<(h, w, f, r, s, c) -> (f, r, s, c)>, affine_map<(h, w, f, r, s, c) -> (h, w, f)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x6x6xi8>, tensor<4x3x3x2xi8>) outs(%f : tensor<4x4x4xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<4x4x4xi32>
  return %0 : tensor<4x4x4xi32>
}
