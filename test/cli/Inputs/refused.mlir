// Vulkan targets refuse f64 products.
func.func @main(%x: tensor<4x4xf64>, %y: tensor<4x4xf64>, %z: tensor<4x4xf64>) -> tensor<4x4xf64> {
  %0 = linalg.matmul ins(%x, %y : tensor<4x4xf64>, tensor<4x4xf64>) outs(%z : tensor<4x4xf64>) -> tensor<4x4xf64>
  return %0 : tensor<4x4xf64>
}
