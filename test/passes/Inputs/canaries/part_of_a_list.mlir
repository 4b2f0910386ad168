// A tensor whose size is read out of a part of a list.
func.func @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %m = tensor.dim %x, %c1 : tensor<?x?xf32>
  %b = arith.index_cast %m : index to i64
  %l = tensor.from_elements %b, %b : tensor<2xi64>
  %p = tensor.extract_slice %l[1] [1] [1] : tensor<2xi64> to tensor<1xi64>
  %q = tensor.extract_slice %l[0] [1] [1] : tensor<2xi64> to tensor<1xi64>
  %v = tensor.extract %p[%c0] : tensor<1xi64>
  %w = tensor.extract %q[%c0] : tensor<1xi64>
  %i = arith.index_cast %v : i64 to index
  %j = arith.index_cast %w : i64 to index
  %e = tensor.empty(%j, %i) : tensor<?x?xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %f : tensor<?x?xf32>
}
