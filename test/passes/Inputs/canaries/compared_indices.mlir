// A gather of table rows. The number of indices is dynamic, and they are computed in two steps.
#row = affine_map<(b, s) -> (b)>
#both = affine_map<(b, s) -> (b, s)>
func.func @main(%x: tensor<?xi32>, %y: tensor<?xf32>, %t: tensor<16x4xf32>) -> tensor<?x?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xi32>
  %m = tensor.dim %y, %c0 : tensor<?xf32>
  %e0 = tensor.empty(%n) : tensor<?xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(b) -> (b)>, affine_map<(b) -> (b)>], iterator_types = ["parallel"]}
      ins(%x : tensor<?xi32>) outs(%e0 : tensor<?xi32>) {
  ^bb0(%a: i32, %o: i32):
    %4 = arith.muli %a, %a : i32
    linalg.yield %4 : i32
  } -> tensor<?xi32>
  %e1 = tensor.empty(%n, %m) : tensor<?x?xi64>
  %1 = linalg.generic {indexing_maps = [#row, #both], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<?xi32>) outs(%e1 : tensor<?x?xi64>) {
  ^bb0(%a: i32, %o: i64):
    %4 = linalg.index 1 : index
    %5 = arith.index_cast %4 : index to i64
    %6 = arith.extsi %a : i32 to i64
    %7 = arith.addi %6, %5 : i64
    linalg.yield %7 : i64
  } -> tensor<?x?xi64>
  %e2 = tensor.empty(%n, %m) : tensor<?x?x4xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(b, s, k) -> (b, s)>, affine_map<(b, s, k) -> (b, s, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%1 : tensor<?x?xi64>) outs(%e2 : tensor<?x?x4xf32>) {
  ^bb0(%a: i64, %o: f32):
    %4 = arith.index_cast %a : i64 to index
    %5 = linalg.index 2 : index
    %6 = tensor.extract %t[%4, %5] : tensor<16x4xf32>
    linalg.yield %6 : f32
  } -> tensor<?x?x4xf32>
  return %2 : tensor<?x?x4xf32>
}
