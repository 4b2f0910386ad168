// IREE puts two globals that are initialised with zeros in one buffer: a write to the second also changes the first.
#row = affine_map<(i, j) -> (i, j)>
util.global private mutable @k = dense<0.0> : tensor<4x2xf32>
util.global private mutable @v = dense<0.0> : tensor<4x2xf32>
func.func @main(%x: tensor<1x2xf32>, %y: tensor<1x2xf32>, %row: tensor<1x1xi32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %k = util.global.load @k : tensor<4x2xf32>
  %v = util.global.load @v : tensor<4x2xf32>
  %k1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%x, %row : tensor<1x2xf32>, tensor<1x1xi32>) outs(%k : tensor<4x2xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<4x2xf32>
  %v1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%y, %row : tensor<1x2xf32>, tensor<1x1xi32>) outs(%v : tensor<4x2xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<4x2xf32>
  util.global.store %k1, @k : tensor<4x2xf32>
  util.global.store %v1, @v : tensor<4x2xf32>
  %e = tensor.empty() : tensor<4x2xf32>
  %k2 = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]}
      ins(%k1 : tensor<4x2xf32>) outs(%e : tensor<4x2xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<4x2xf32>
  %v2 = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]}
      ins(%v1 : tensor<4x2xf32>) outs(%e : tensor<4x2xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<4x2xf32>
  return %k2, %v2 : tensor<4x2xf32>, tensor<4x2xf32>
}
