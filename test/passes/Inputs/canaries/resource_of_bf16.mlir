// A small constant of bf16 in a resource.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = arith.constant dense_resource<w> : tensor<4xbf16>
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x, %w : tensor<4xf32>, tensor<4xbf16>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: bf16, %o: f32):
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.addf %a, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

{-#
  dialect_resources: {
    builtin: {
      w: "0x02000000803F0040404080C0"
    }
  }
#-}
