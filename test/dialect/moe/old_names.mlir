// The old attribute names `packing` and `zero_mode`, without the prefix `weight_`. They describe both weights.
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | filecheck %s

// CHECK: weight_dtype = "u4", weight_packing = "low_first", weight_zero_mode = "offset_int", weights_transposed = true}
func.func @names(%x: tensor<6x8xf32>, %w1: tensor<4x16x4xi8>, %w2: tensor<4x8x8xi8>, %ids: tensor<6x2xi32>,
    %r: tensor<6x2xf32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%x, %w1, %w2, %ids, %r) {
    weights_transposed = true, weight_dtype = "u4", packing = "low_first", zero_mode = "offset_int"
  } : (tensor<6x8xf32>, tensor<4x16x4xi8>, tensor<4x8x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}
