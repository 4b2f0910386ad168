// `x[b, m, k] @ w[b, n, k]^T` of weights whose batch and columns are one axis of a transpose: five columns are padded.
func.func @main(%x: tensor<2x16x20xf32>, %w: tensor<5x4x10xf32>) -> tensor<2x16x5xf32> {
  %zero = arith.constant 0.0 : f32
  %et = tensor.empty() : tensor<10x5x4xf32>
  %t = linalg.transpose ins(%w : tensor<5x4x10xf32>) outs(%et : tensor<10x5x4xf32>) permutation = [2, 0, 1]
  %merged = tensor.collapse_shape %t [[0], [1, 2]] : tensor<10x5x4xf32> into tensor<10x20xf32>
  %split = tensor.expand_shape %merged [[0, 1], [2]] output_shape [2, 5, 20] : tensor<10x20xf32> into tensor<2x5x20xf32>
  %eu = tensor.empty() : tensor<2x20x5xf32>
  %u = linalg.transpose ins(%split : tensor<2x5x20xf32>) outs(%eu : tensor<2x20x5xf32>) permutation = [0, 2, 1]
  %ez = tensor.empty() : tensor<2x16x5xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%ez : tensor<2x16x5xf32>) -> tensor<2x16x5xf32>
  %z = linalg.batch_matmul ins(%x, %u : tensor<2x16x20xf32>, tensor<2x20x5xf32>) outs(%z0 : tensor<2x16x5xf32>) -> tensor<2x16x5xf32>
  return %z : tensor<2x16x5xf32>
}
