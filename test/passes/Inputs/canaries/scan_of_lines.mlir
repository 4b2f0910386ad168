// Cumulative sums along an axis that is not the last one.
func.func @main(%x: tensor<5x5x5xi64>) -> tensor<5x5x5xi64> {
  %c0 = arith.constant 0 : i64
  %e3 = tensor.empty() : tensor<5x5x5xi64>
  %e2 = tensor.empty() : tensor<5x5xi64>
  %f3 = linalg.fill ins(%c0 : i64) outs(%e3 : tensor<5x5x5xi64>) -> tensor<5x5x5xi64>
  %f2 = linalg.fill ins(%c0 : i64) outs(%e2 : tensor<5x5xi64>) -> tensor<5x5xi64>
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<5x5x5xi64>) outs(%f3, %f2 : tensor<5x5x5xi64>, tensor<5x5xi64>) {
    ^bb0(%a: i64, %b: i64):
      %s = arith.addi %a, %b : i64
      iree_linalg_ext.yield %s : i64
  } -> tensor<5x5x5xi64>, tensor<5x5xi64>
  return %r#0 : tensor<5x5x5xi64>
}
