// The minimum of positive integers.
func.func @main(%x: tensor<64xi32>) -> tensor<i32> {
  %largest = arith.constant 2147483647 : i32
  %e = tensor.empty() : tensor<i32>
  %start = linalg.fill ins(%largest : i32) outs(%e : tensor<i32>) -> tensor<i32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi32>) outs(%start : tensor<i32>) {
  ^bb0(%in: i32, %acc: i32):
    %1 = arith.minsi %in, %acc : i32
    linalg.yield %1 : i32
  } -> tensor<i32>
  return %0 : tensor<i32>
}
