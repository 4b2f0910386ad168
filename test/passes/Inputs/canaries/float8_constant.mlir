// A small constant of one-byte floats whose bits a dispatch reads.
func.func @main(%x: tensor<4x8xi8>) -> tensor<4x8xi8> {
  %c = arith.constant dense<[1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf8E4M3FN>
  %e = tensor.empty() : tensor<4x8xi8>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %c : tensor<4x8xi8>, tensor<8xf8E4M3FN>) outs(%e : tensor<4x8xi8>) {
  ^bb0(%a: i8, %b: f8E4M3FN, %o: i8):
    %1 = arith.bitcast %b : f8E4M3FN to i8
    %2 = arith.addi %a, %1 : i8
    linalg.yield %2 : i8
  } -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}
