// Two results of dynamic sizes, chosen by a branch: IREE reads the first one at the offset of the second.
func.func @main(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.dim %x, %c0 : tensor<?x?xf32>
  %b = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = arith.cmpi eq, %a, %c0 : index
  %0:2 = scf.if %empty -> (tensor<?x?xf32>, tensor<?x?xf32>) {
    %e0 = tensor.empty(%a, %b) : tensor<?x?xf32>
    %e1 = tensor.empty(%a, %b) : tensor<?x?xf32>
    scf.yield %e0, %e1 : tensor<?x?xf32>, tensor<?x?xf32>
  } else {
    %sum = arith.addf %x, %x : tensor<?x?xf32>
    %product = arith.mulf %x, %x : tensor<?x?xf32>
    scf.yield %sum, %product : tensor<?x?xf32>, tensor<?x?xf32>
  }
  return %0#0, %0#1 : tensor<?x?xf32>, tensor<?x?xf32>
}
