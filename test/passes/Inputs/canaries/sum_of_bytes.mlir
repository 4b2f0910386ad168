// A sum of bytes in a byte.
func.func @main(%x: tensor<64xi8>) -> tensor<i8> {
  %zero = arith.constant 0 : i8
  %e = tensor.empty() : tensor<i8>
  %start = linalg.fill ins(%zero : i8) outs(%e : tensor<i8>) -> tensor<i8>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi8>) outs(%start : tensor<i8>) {
  ^bb0(%in: i8, %acc: i8):
    %1 = arith.addi %in, %acc : i8
    linalg.yield %1 : i8
  } -> tensor<i8>
  return %0 : tensor<i8>
}
