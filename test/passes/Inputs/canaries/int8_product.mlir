// A product of int8 codes with sums of i32.
func.func @main(%x: tensor<64x256xi8>, %w: tensor<256x64xi8>) -> tensor<64x64xi32> {
  %zero = arith.constant dense<0> : tensor<64x64xi32>
  %0 = linalg.matmul ins(%x, %w : tensor<64x256xi8>, tensor<256x64xi8>) outs(%zero : tensor<64x64xi32>) -> tensor<64x64xi32>
  return %0 : tensor<64x64xi32>
}
