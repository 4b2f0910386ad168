// The remainder of f64 values. On CPUs, it becomes a call of C's `fmod`, which is not linked.
func.func @main(%x: tensor<64xf64>, %y: tensor<64xf64>) -> tensor<64xf64> {
  %e = tensor.empty() : tensor<64xf64>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x, %y : tensor<64xf64>, tensor<64xf64>) outs(%e : tensor<64xf64>) {
  ^bb0(%a: f64, %b: f64, %o: f64):
    %1 = arith.remf %a, %b : f64
    linalg.yield %1 : f64
  } -> tensor<64xf64>
  return %0 : tensor<64xf64>
}
