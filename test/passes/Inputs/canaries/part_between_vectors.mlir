// A part of the last axis that begins at its fourth element.
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x4xf32> {
  %0 = tensor.extract_slice %x[0, 3] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %e = tensor.empty() : tensor<8x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) {
  ^bb0(%p: f32, %q: f32):
    %2 = arith.addf %p, %p : f32
    linalg.yield %2 : f32
  } -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
