// `x[b, m, n] - sum over k of w[b, k, n]`.
func.func @main(%w: tensor<3x40x24xi32>, %x: tensor<3x4x24xi32>) -> tensor<3x4x24xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<3x24xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<3x24xi32>) -> tensor<3x24xi32>
  %sum = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b, k, n)>, affine_map<(b, n, k) -> (b, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%w : tensor<3x40x24xi32>) outs(%f : tensor<3x24xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %0 = arith.addi %a, %acc : i32
    linalg.yield %0 : i32
  } -> tensor<3x24xi32>
  %o = tensor.empty() : tensor<3x4x24xi32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, n)>,
      affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %sum : tensor<3x4x24xi32>, tensor<3x24xi32>) outs(%o : tensor<3x4x24xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %0 = arith.subi %a, %b : i32
    linalg.yield %0 : i32
  } -> tensor<3x4x24xi32>
  return %y : tensor<3x4x24xi32>
}
