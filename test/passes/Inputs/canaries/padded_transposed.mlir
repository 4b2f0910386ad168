// `w[b, m, k] @ y[b, n, k]^T` of rows that their own sums scale: three columns are padded, as in padded_batch.mlir.
#all = affine_map<(b, n, k) -> (b, n, k)>
#rows = affine_map<(b, n, k) -> (b, n)>
func.func @main(%x: tensor<2x3x4xf32>, %w: tensor<2x8x4xf32>) -> tensor<2x8x3xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<2x3xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x3xf32>) -> tensor<2x3xf32>
  %s = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x3x4xf32>) outs(%s0 : tensor<2x3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x3xf32>
  %ey = tensor.empty() : tensor<2x3x4xf32>
  %y = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<2x3x4xf32>, tensor<2x3xf32>) outs(%ey : tensor<2x3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x4xf32>
  %et = tensor.empty() : tensor<2x4x3xf32>
  %t = linalg.transpose ins(%y : tensor<2x3x4xf32>) outs(%et : tensor<2x4x3xf32>) permutation = [0, 2, 1]
  %ez = tensor.empty() : tensor<2x8x3xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%ez : tensor<2x8x3xf32>) -> tensor<2x8x3xf32>
  %z = linalg.batch_matmul ins(%w, %t : tensor<2x8x4xf32>, tensor<2x4x3xf32>) outs(%z0 : tensor<2x8x3xf32>) -> tensor<2x8x3xf32>
  return %z : tensor<2x8x3xf32>
}
