// A batch of two products with three (padded) columns each. The sum of each of the six weight rows is subtracted.
func.func @main(%x: tensor<2x20x4xi8>, %w: tensor<6x4xi8>) -> tensor<20x6xi32> {
  %zero = arith.constant 0 : i32
  %es = tensor.empty() : tensor<6xi32>
  %s0 = linalg.fill ins(%zero : i32) outs(%es : tensor<6xi32>) -> tensor<6xi32>
  %sums = linalg.generic {
    indexing_maps = [affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%w : tensor<6x4xi8>) outs(%s0 : tensor<6xi32>) {
  ^bb0(%a: i8, %o: i32):
    %0 = arith.extsi %a : i8 to i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<6xi32>
  %split = tensor.expand_shape %w [[0, 1], [2]] output_shape [2, 3, 4] : tensor<6x4xi8> into tensor<2x3x4xi8>
  %ey = tensor.empty() : tensor<2x20x3xi32>
  %y0 = linalg.fill ins(%zero : i32) outs(%ey : tensor<2x20x3xi32>) -> tensor<2x20x3xi32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction"]
  } ins(%x, %split : tensor<2x20x4xi8>, tensor<2x3x4xi8>) outs(%y0 : tensor<2x20x3xi32>) {
  ^bb0(%a: i8, %b: i8, %o: i32):
    %0 = arith.extsi %a : i8 to i32
    %1 = arith.extsi %b : i8 to i32
    %2 = arith.muli %0, %1 : i32
    %3 = arith.addi %o, %2 : i32
    linalg.yield %3 : i32
  } -> tensor<2x20x3xi32>
  %et = tensor.empty() : tensor<20x2x3xi32>
  %t = linalg.transpose ins(%y : tensor<2x20x3xi32>) outs(%et : tensor<20x2x3xi32>) permutation = [1, 0, 2]
  %merged = tensor.collapse_shape %t [[0], [1, 2]] : tensor<20x2x3xi32> into tensor<20x6xi32>
  %er = tensor.empty() : tensor<20x6xi32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%merged, %sums : tensor<20x6xi32>, tensor<6xi32>) outs(%er : tensor<20x6xi32>) {
  ^bb0(%a: i32, %b: i32, %o: i32):
    %0 = arith.subi %a, %b : i32
    linalg.yield %0 : i32
  } -> tensor<20x6xi32>
  return %r : tensor<20x6xi32>
}
