// A batch of sixteen products, whose result is transposed so that its rows come before the batch.
func.func @main(%lhs: tensor<16x?x32xf16>, %rhs: tensor<16x16x32xf16>) -> tensor<?x16x16xf32> {
  %axis = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %lhs, %axis : tensor<16x?x32xf16>
  %empty = tensor.empty(%m) : tensor<16x?x16xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<16x?x16xf32>) -> tensor<16x?x16xf32>
  %product = linalg.generic {
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%lhs, %rhs : tensor<16x?x32xf16>, tensor<16x16x32xf16>) outs(%start : tensor<16x?x16xf32>) {
  ^bb0(%x: f16, %y: f16, %sum: f32):
    %a = arith.extf %x : f16 to f32
    %b = arith.extf %y : f16 to f32
    %c = arith.mulf %a, %b : f32
    %d = arith.addf %sum, %c : f32
    linalg.yield %d : f32
  } -> tensor<16x?x16xf32>
  %rows = tensor.empty(%m) : tensor<?x16x16xf32>
  %result = linalg.transpose ins(%product : tensor<16x?x16xf32>) outs(%rows : tensor<?x16x16xf32>) permutation = [1, 0, 2]
  return %result : tensor<?x16x16xf32>
}
