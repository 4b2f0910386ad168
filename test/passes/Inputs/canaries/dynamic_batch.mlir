// `2 p[b, h, m, k]` by `v[b h, k, n]`: what makes an operand is fused with the product.
func.func @main(%p: tensor<?x2x?x?xf32>, %v: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %p, %c0 : tensor<?x2x?x?xf32>
  %m = tensor.dim %p, %c2 : tensor<?x2x?x?xf32>
  %k = tensor.dim %p, %c3 : tensor<?x2x?x?xf32>
  %batch = tensor.dim %v, %c0 : tensor<?x?x8xf32>
  %e = tensor.empty(%b, %m, %k) : tensor<?x2x?x?xf32>
  %twice = linalg.generic {indexing_maps = [affine_map<(b, h, m, k) -> (b, h, m, k)>,
      affine_map<(b, h, m, k) -> (b, h, m, k)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%p : tensor<?x2x?x?xf32>) outs(%e : tensor<?x2x?x?xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<?x2x?x?xf32>
  %lhs = tensor.collapse_shape %twice [[0, 1], [2], [3]] : tensor<?x2x?x?xf32> into tensor<?x?x?xf32>
  %o = tensor.empty(%batch, %m) : tensor<?x?x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%o : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %y = linalg.batch_matmul ins(%lhs, %v : tensor<?x?x?xf32>, tensor<?x?x8xf32>)
      outs(%f : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %y : tensor<?x?x8xf32>
}
