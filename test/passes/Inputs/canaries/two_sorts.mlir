// Two sorts along the last axis, which both have the same tensor of initial indices as a destination.
func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xi64> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xi64>
  %columns = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%e : tensor<?x4xi64>) {
  ^bb0(%out: i64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    linalg.yield %j : i64
  } -> tensor<?x4xi64>
  %0:2 = iree_linalg_ext.sort dimension(1) outs(%x, %columns : tensor<?x4xf32>, tensor<?x4xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<?x4xf32>, tensor<?x4xi64>
  %1:2 = iree_linalg_ext.sort dimension(1) outs(%y, %columns : tensor<?x4xf32>, tensor<?x4xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<?x4xf32>, tensor<?x4xi64>
  %both = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%0#1, %1#1 : tensor<?x4xi64>, tensor<?x4xi64>) outs(%e : tensor<?x4xi64>) {
  ^bb0(%a: i64, %b: i64, %out: i64):
    %sum = arith.addi %a, %b : i64
    linalg.yield %sum : i64
  } -> tensor<?x4xi64>
  return %both : tensor<?x4xi64>
}
