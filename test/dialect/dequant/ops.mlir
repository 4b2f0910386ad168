// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// The affine mapping.
// CHECK-LABEL: func.func @per_tensor(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operandSegmentSizes = array<i32: 1, 1, 1, 0>, zero_mode = "int"}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
func.func @per_tensor(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operandSegmentSizes = array<i32: 1, 1, 1, 0>,
    zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// Packed codes: the result tells the true length.
// CHECK-LABEL: func.func @packed(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "i4", operandSegmentSizes = array<i32: 1, 1, 0, 0>, packing = "low_first"}
// CHECK-SAME: : (tensor<4x2xi8>, tensor<4x1xf16>) -> tensor<4x3xf16>
func.func @packed(%input: tensor<4x2xi8>, %scale: tensor<4x1xf16>) -> tensor<4x3xf16> {
  %0 = "qmlir.dequant"(%input, %scale) {
    operandSegmentSizes = array<i32: 1, 1, 0, 0>,
    dtype = "i4", packing = "low_first"
  }
      : (tensor<4x2xi8>, tensor<4x1xf16>) -> tensor<4x3xf16>
  return %0 : tensor<4x3xf16>
}

// Zero points packed like the codes.
// CHECK-LABEL: func.func @packed_zero(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "u4", operandSegmentSizes = array<i32: 1, 1, 1, 0>, packing = "low_first",
// CHECK-SAME: zero_mode = "packed_int"}
// CHECK-SAME: : (tensor<8x2xi8>, tensor<2x4xf32>, tensor<2x2xi8>) -> tensor<8x4xf32>
func.func @packed_zero(%input: tensor<8x2xi8>, %scale: tensor<2x4xf32>, %zero_point: tensor<2x2xi8>)
    -> tensor<8x4xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operandSegmentSizes = array<i32: 1, 1, 1, 0>,
    dtype = "u4", packing = "low_first", zero_mode = "packed_int"
  }
      : (tensor<8x2xi8>, tensor<2x4xf32>, tensor<2x2xi8>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// Groups along the last axis with a float zero point.
// CHECK-LABEL: func.func @float_zero(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "u8", operandSegmentSizes = array<i32: 1, 1, 1, 0>, zero_mode = "rescale"}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x8xbf16>
func.func @float_zero(%input: tensor<4x8xi8>, %scale: tensor<4x2xf32>, %zero_point: tensor<4x2xf32>)
    -> tensor<4x8xbf16> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operandSegmentSizes = array<i32: 1, 1, 1, 0>,
    dtype = "u8", zero_mode = "rescale"
  }
      : (tensor<4x8xi8>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}

// A table of 16 values.
// CHECK-LABEL: func.func @codebook(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "codebook", operandSegmentSizes = array<i32: 1, 1, 0, 1>}
// CHECK-SAME: : (tensor<?x8xi8>, tensor<?x1xf32>, tensor<16xf32>) -> tensor<?x8xf32>
func.func @codebook(%input: tensor<?x8xi8>, %scale: tensor<?x1xf32>, %codebook: tensor<16xf32>) -> tensor<?x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %codebook) {
    operandSegmentSizes = array<i32: 1, 1, 0, 1>,
    dtype = "codebook"
  }
      : (tensor<?x8xi8>, tensor<?x1xf32>, tensor<16xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// A power-of-two scale every 32 codes.
// CHECK-LABEL: func.func @mx(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operandSegmentSizes = array<i32: 1, 1, 0, 0>}
// CHECK-SAME: : (tensor<2x64xf8E5M2>, tensor<2x2xf8E8M0FNU>) -> tensor<2x64xf32>
func.func @mx(%input: tensor<2x64xf8E5M2>, %scale: tensor<2x2xf8E8M0FNU>) -> tensor<2x64xf32> {
  %0 = "qmlir.dequant"(%input, %scale) {operandSegmentSizes = array<i32: 1, 1, 0, 0>}
      : (tensor<2x64xf8E5M2>, tensor<2x2xf8E8M0FNU>) -> tensor<2x64xf32>
  return %0 : tensor<2x64xf32>
}
