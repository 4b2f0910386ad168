// A sum of elements times their index: of as many as a workgroup has lanes.
func.func @main(%x: tensor<4x256xi32>) -> tensor<4xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<4xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<4xi32>) -> tensor<4xi32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x256xi32>) outs(%f : tensor<4xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %k = linalg.index 1 : index
    %1 = arith.index_cast %k : index to i32
    %2 = arith.muli %a, %1 : i32
    %3 = arith.addi %acc, %2 : i32
    linalg.yield %3 : i32
  } -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
