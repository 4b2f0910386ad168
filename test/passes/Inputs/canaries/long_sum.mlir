// A sum of more elements than a loop of llvmpipe has iterations.
func.func @main(%x: tensor<70001xi32>) -> tensor<i32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<i32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<i32>) -> tensor<i32>
  %0 = linalg.generic {indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> ()>],
      iterator_types = ["reduction"]} ins(%x : tensor<70001xi32>) outs(%f : tensor<i32>) {
  ^bb0(%a: i32, %acc: i32):
    %1 = arith.addi %acc, %a : i32
    linalg.yield %1 : i32
  } -> tensor<i32>
  return %0 : tensor<i32>
}
