// RUN: qmlir-opt %s --pass-pipeline='qmlir-check-loops{longest=63}' --split-input-file --verify-diagnostics | filecheck %s

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

func.func @long(%x: tensor<2x64xf32>, %init: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{a reduction over 64 elements is longer than the loops of this device, which stop after 63; reduce rows or groups instead of the whole tensor}}
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x64xf32>) outs(%init : tensor<2xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.maximumf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

// As long as a loop may be; only the reduced axis counts.
// CHECK-LABEL: func.func @short(
// CHECK: linalg.generic
func.func @short(%x: tensor<100x63xf32>, %init: tensor<100xf32>) -> tensor<100xf32> {
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<100x63xf32>) outs(%init : tensor<100xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.maximumf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<100xf32>
  return %0 : tensor<100xf32>
}

// -----

// A contraction is tiled by its strategy.
// CHECK-LABEL: func.func @contraction(
// CHECK: linalg.matmul
func.func @contraction(%a: tensor<2x64xf32>, %b: tensor<64x3xf32>, %c: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<2x64xf32>, tensor<64x3xf32>) outs(%c : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
