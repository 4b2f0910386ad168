// `2 x[m, k]` by `w[k, n]`: what makes an operand is fused with a product over a dynamic size.
func.func @main(%x: tensor<5x?xf32>, %w: tensor<?x8xf32>) -> tensor<5x8xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %k = tensor.dim %w, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%k) : tensor<5x?xf32>
  %twice = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<5x?xf32>) outs(%e : tensor<5x?xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<5x?xf32>
  %o = tensor.empty() : tensor<5x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<5x8xf32>) -> tensor<5x8xf32>
  %y = linalg.matmul ins(%twice, %w : tensor<5x?xf32>, tensor<?x8xf32>) outs(%f : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}
