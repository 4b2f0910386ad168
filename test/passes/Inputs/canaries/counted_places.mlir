// A histogram of 100 bins. The op that compares bin indices with bins also reads the values they are computed from.
func.func @main(%x: tensor<25xf32>) -> tensor<100xf32> {
  %zero = arith.constant 0.0 : f32
  %ten = arith.constant 10.0 : f32
  %last = arith.constant 99 : i64
  %ei = tensor.empty() : tensor<25xi64>
  %place = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<25xf32>) outs(%ei : tensor<25xi64>) {
  ^bb0(%a: f32, %out: i64):
    %0 = arith.mulf %a, %ten : f32
    %1 = arith.divf %0, %a : f32
    %2 = arith.mulf %1, %a : f32
    %3 = arith.fptosi %2 : f32 to i64
    %4 = arith.minsi %3, %last : i64
    linalg.yield %4 : i64
  } -> tensor<25xi64>
  %eh = tensor.empty() : tensor<25x100xf32>
  %hit = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%place, %x : tensor<25xi64>, tensor<25xf32>) outs(%eh : tensor<25x100xf32>) {
  ^bb0(%p: i64, %a: f32, %out: f32):
    %j = linalg.index 1 : index
    %n = arith.index_cast %j : index to i64
    %same = arith.cmpi eq, %p, %n : i64
    %above = arith.cmpf oge, %a, %zero : f32
    %both = arith.andi %same, %above : i1
    %0 = arith.uitofp %both : i1 to f32
    linalg.yield %0 : f32
  } -> tensor<25x100xf32>
  %ec = tensor.empty() : tensor<100xf32>
  %f = linalg.fill ins(%zero : f32) outs(%ec : tensor<100xf32>) -> tensor<100xf32>
  %count = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>],
      iterator_types = ["reduction", "parallel"]} ins(%hit : tensor<25x100xf32>) outs(%f : tensor<100xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %0 = arith.addf %a, %acc : f32
    linalg.yield %0 : f32
  } -> tensor<100xf32>
  return %count : tensor<100xf32>
}
