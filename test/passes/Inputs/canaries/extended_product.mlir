// The high words of squares, each of them repeated twice along an axis.
func.func @main(%x: tensor<64xi32>) -> tensor<128xi32> {
  %e = tensor.empty() : tensor<64x2xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64xi32>) outs(%e : tensor<64x2xi32>) {
  ^bb0(%a: i32, %o: i32):
    %low, %high = arith.mului_extended %a, %a : i32
    linalg.yield %high : i32
  } -> tensor<64x2xi32>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<64x2xi32> into tensor<128xi32>
  return %1 : tensor<128xi32>
}
