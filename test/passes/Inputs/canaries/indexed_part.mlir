// A gather of rows from a slice of each matrix.
func.func @main(%x: tensor<2x5x4xi32>, %at: tensor<3xi32>) -> tensor<2x3x4xi32> {
  %part = tensor.extract_slice %x[0, 1, 0] [2, 3, 4] [1, 1, 1] : tensor<2x5x4xi32> to tensor<2x3x4xi32>
  %e = tensor.empty() : tensor<2x3x4xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (i)>, affine_map<(b, i, j) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%at : tensor<3xi32>) outs(%e : tensor<2x3x4xi32>) {
  ^bb0(%i: i32, %out: i32):
    %b = linalg.index 0 : index
    %row = arith.index_cast %i : i32 to index
    %j = linalg.index 2 : index
    %v = tensor.extract %part[%b, %row, %j] : tensor<2x3x4xi32>
    linalg.yield %v : i32
  } -> tensor<2x3x4xi32>
  return %r : tensor<2x3x4xi32>
}
