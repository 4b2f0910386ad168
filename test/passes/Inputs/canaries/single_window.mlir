// A convolution of one window that does not read the last row and column of the image.
func.func @main(%x: tensor<1x4x4x2xi8>, %w: tensor<3x3x3x2xi8>) -> tensor<1x1x1x3xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<1x1x1x3xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<1x1x1x3xi32>) -> tensor<1x1x1x3xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(n, h, w, f, r, s, c) -> (n, h * 2 + r, w * 2 + s, c)>,
      affine_map<(n, h, w, f, r, s, c) -> (f, r, s, c)>, affine_map<(n, h, w, f, r, s, c) -> (n, h, w, f)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<1x4x4x2xi8>, tensor<3x3x3x2xi8>) outs(%f : tensor<1x1x1x3xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<1x1x1x3xi32>
  return %0 : tensor<1x1x1x3xi32>
}
