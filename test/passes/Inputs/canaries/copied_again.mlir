// Two elements of an argument, which are copied to the host.
func.func @main(%x: tensor<5xi32>) -> tensor<2xi32> {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %a = tensor.extract %x[%c0] : tensor<5xi32>
  %b = tensor.extract %x[%c4] : tensor<5xi32>
  %r = tensor.from_elements %a, %b : tensor<2xi32>
  return %r : tensor<2xi32>
}
