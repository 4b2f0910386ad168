// A batched product whose lhs is one row, broadcast to eight rows and three batches.
func.func @main(%x: tensor<53xi8>, %w: tensor<3x53x1xi8>) -> tensor<3x8x1xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<3x8x53xi8>
  %rows = linalg.generic {indexing_maps = [affine_map<(b, m, k) -> (k)>, affine_map<(b, m, k) -> (b, m, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<53xi8>) outs(%e : tensor<3x8x53xi8>) {
  ^bb0(%in: i8, %out: i8):
    linalg.yield %in : i8
  } -> tensor<3x8x53xi8>
  %o = tensor.empty() : tensor<3x8x1xi32>
  %f = linalg.fill ins(%zero : i32) outs(%o : tensor<3x8x1xi32>) -> tensor<3x8x1xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>,
      affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%rows, %w : tensor<3x8x53xi8>, tensor<3x53x1xi8>) outs(%f : tensor<3x8x1xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<3x8x1xi32>
  return %0 : tensor<3x8x1xi32>
}
