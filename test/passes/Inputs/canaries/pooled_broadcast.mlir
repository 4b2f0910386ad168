// The number of elements of each window: a sum pooling of ones.
func.func @main(%x: tensor<?x8x8xf32>) -> tensor<?x4x4xf32> {
  %axis = arith.constant 0 : index
  %one = arith.constant dense<1.0> : tensor<f32>
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %axis : tensor<?x8x8xf32>
  %e = tensor.empty(%n) : tensor<?x1x8x8xf32>
  %ones = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> ()>, affine_map<(n, c, h, w) -> (n, c, h, w)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%one : tensor<f32>) outs(%e : tensor<?x1x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<?x1x8x8xf32>
  %o = tensor.empty(%n) : tensor<?x1x4x4xf32>
  %start = linalg.fill ins(%zero : f32) outs(%o : tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32>
  %window = tensor.empty() : tensor<2x2xf32>
  %count = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%ones, %window : tensor<?x1x8x8xf32>, tensor<2x2xf32>) outs(%start : tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32>
  %result = tensor.collapse_shape %count [[0, 1], [2], [3]] : tensor<?x1x4x4xf32> into tensor<?x4x4xf32>
  return %result : tensor<?x4x4xf32>
}
