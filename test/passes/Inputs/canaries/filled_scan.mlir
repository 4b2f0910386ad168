// A cumulative sum of a tensor of ones that has the dynamic sizes of the argument.
func.func @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %e1 = tensor.empty(%m) : tensor<?xf32>
  %e2 = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %ones = linalg.fill ins(%one : f32) outs(%e2 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%ones : tensor<?x?xf32>) outs(%f2, %f1 : tensor<?x?xf32>, tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      iree_linalg_ext.yield %s : f32
  } -> tensor<?x?xf32>, tensor<?xf32>
  return %r#0 : tensor<?x?xf32>
}
