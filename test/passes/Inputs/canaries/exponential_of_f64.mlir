// exp of f64 values.
func.func @main(%x: tensor<64xf64>) -> tensor<64xf64> {
  %0 = math.exp %x : tensor<64xf64>
  return %0 : tensor<64xf64>
}
