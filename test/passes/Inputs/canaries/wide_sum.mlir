// A sum of f32 in f64.
func.func @main(%x: tensor<16x64xf32>) -> tensor<16xf64> {
  %zero = arith.constant 0.0 : f64
  %e = tensor.empty() : tensor<16xf64>
  %start = linalg.fill ins(%zero : f64) outs(%e : tensor<16xf64>) -> tensor<16xf64>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<16x64xf32>) outs(%start : tensor<16xf64>) {
  ^bb0(%in: f32, %acc: f64):
    %1 = arith.extf %in : f32 to f64
    %2 = arith.addf %acc, %1 : f64
    linalg.yield %2 : f64
  } -> tensor<16xf64>
  return %0 : tensor<16xf64>
}
