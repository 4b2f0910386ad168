// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// One scale for the whole tensor.
// CHECK-LABEL: func.func @per_tensor(
// CHECK: "qmlir.quantize"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "scale"]}
// CHECK-SAME: : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
func.func @per_tensor(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// Unsigned codes clamped to [1, 254]; ties are rounded away from zero.
// CHECK-LABEL: func.func @per_channel(
// CHECK: "qmlir.quantize"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {clamp = array<i64: 1, 254>, operand_names = ["input", "scale", "zero_point"], out_dtype = "u8",
// CHECK-SAME: rounding = "half_away"}
// CHECK-SAME: : (tensor<?x8xf16>, tensor<1x8xf32>, tensor<1x8xi8>) -> tensor<?x8xi8>
func.func @per_channel(%input: tensor<?x8xf16>, %scale: tensor<1x8xf32>, %zero_point: tensor<1x8xi8>)
    -> tensor<?x8xi8> {
  %0 = "qmlir.quantize"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    out_dtype = "u8", rounding = "half_away", clamp = array<i64: 1, 254>
  }
      : (tensor<?x8xf16>, tensor<1x8xf32>, tensor<1x8xi8>) -> tensor<?x8xi8>
  return %0 : tensor<?x8xi8>
}

// One scale and zero point per block of 2x4 elements.
// CHECK-LABEL: func.func @blocks(
// CHECK: "qmlir.quantize"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "scale", "zero_point"], out_dtype = "i4", rounding = "trunc"}
// CHECK-SAME: : (tensor<4x8xbf16>, tensor<2x2xf32>, tensor<2x2xi32>) -> tensor<4x8xi8>
func.func @blocks(%input: tensor<4x8xbf16>, %scale: tensor<2x2xf32>, %zero_point: tensor<2x2xi32>) -> tensor<4x8xi8> {
  %0 = "qmlir.quantize"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    out_dtype = "i4", rounding = "trunc"
  }
      : (tensor<4x8xbf16>, tensor<2x2xf32>, tensor<2x2xi32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}
