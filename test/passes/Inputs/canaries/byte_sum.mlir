// `x[m, n] - sum over k of w[k, n]`, of bytes whose sum is fused with what reads it.
func.func @main(%w: tensor<2x8xi8>, %x: tensor<2x8xi32>) -> tensor<2x8xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<8xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<8xi32>) -> tensor<8xi32>
  %sum = linalg.generic {indexing_maps = [affine_map<(n, k) -> (k, n)>, affine_map<(n, k) -> (n)>],
      iterator_types = ["parallel", "reduction"]} ins(%w : tensor<2x8xi8>) outs(%f : tensor<8xi32>) {
  ^bb0(%a: i8, %acc: i32):
    %0 = arith.extsi %a : i8 to i32
    %1 = arith.addi %acc, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8xi32>
  %o = tensor.empty() : tensor<2x8xi32>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>,
      affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<2x8xi32>, tensor<8xi32>) outs(%o : tensor<2x8xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %0 = arith.subi %a, %b : i32
    linalg.yield %0 : i32
  } -> tensor<2x8xi32>
  return %y : tensor<2x8xi32>
}
