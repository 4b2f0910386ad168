// A product that sums nothing.
func.func @main(%x: tensor<5x0xf32>, %w: tensor<0x10xf32>) -> tensor<5x10xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x10xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<5x10xf32>) -> tensor<5x10xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<5x0xf32>, tensor<0x10xf32>) outs(%f : tensor<5x10xf32>) -> tensor<5x10xf32>
  return %0 : tensor<5x10xf32>
}
