// A product whose rows are a known multiple of 196.
func.func @main(%x: tensor<?x196x64xi8>, %w: tensor<64x64xi8>) -> tensor<?x64xi32> {
  %zero = arith.constant 0 : i32
  %c0 = arith.constant 0 : index
  %c196 = arith.constant 196 : index
  %b = tensor.dim %x, %c0 : tensor<?x196x64xi8>
  %n = arith.muli %b, %c196 : index
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x196x64xi8> into tensor<?x64xi8>
  %e = tensor.empty(%n) : tensor<?x64xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<?x64xi32>) -> tensor<?x64xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%rows, %w : tensor<?x64xi8>, tensor<64x64xi8>)
      outs(%f : tensor<?x64xi32>) {
  ^bb0(%a: i8, %b1: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b1 : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<?x64xi32>
  return %0 : tensor<?x64xi32>
}
