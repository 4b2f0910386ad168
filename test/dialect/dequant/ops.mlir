// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// The affine mapping.
// CHECK-LABEL: func.func @per_tensor(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "scale", "zero_point"], zero_mode = "int"}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
func.func @per_tensor(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// Packed codes: the shape of the result gives their number.
// CHECK-LABEL: func.func @packed(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "i4", operand_names = ["input", "scale"], packing = "low_first"}
// CHECK-SAME: : (tensor<4x2xi8>, tensor<4x1xf16>) -> tensor<4x3xf16>
func.func @packed(%input: tensor<4x2xi8>, %scale: tensor<4x1xf16>) -> tensor<4x3xf16> {
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "i4", packing = "low_first"
  }
      : (tensor<4x2xi8>, tensor<4x1xf16>) -> tensor<4x3xf16>
  return %0 : tensor<4x3xf16>
}

// Zero points packed like the codes.
// CHECK-LABEL: func.func @packed_zero(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "u4", operand_names = ["input", "scale", "zero_point"], packing = "low_first",
// CHECK-SAME: zero_mode = "packed_int"}
// CHECK-SAME: : (tensor<8x2xi8>, tensor<2x4xf32>, tensor<2x2xi8>) -> tensor<8x4xf32>
func.func @packed_zero(%input: tensor<8x2xi8>, %scale: tensor<2x4xf32>, %zero_point: tensor<2x2xi8>)
    -> tensor<8x4xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    dtype = "u4", packing = "low_first", zero_mode = "packed_int"
  }
      : (tensor<8x2xi8>, tensor<2x4xf32>, tensor<2x2xi8>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// Groups along the last axis with a float zero point.
// CHECK-LABEL: func.func @float_zero(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "u8", operand_names = ["input", "scale", "zero_point"], zero_mode = "rescale"}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x8xbf16>
func.func @float_zero(%input: tensor<4x8xi8>, %scale: tensor<4x2xf32>, %zero_point: tensor<4x2xf32>)
    -> tensor<4x8xbf16> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    dtype = "u8", zero_mode = "rescale"
  }
      : (tensor<4x8xi8>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}

// Codes are indices into a table of 16 values.
// CHECK-LABEL: func.func @codebook(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {dtype = "codebook", operand_names = ["input", "scale", "codebook"]}
// CHECK-SAME: : (tensor<?x8xi8>, tensor<?x1xf32>, tensor<16xf32>) -> tensor<?x8xf32>
func.func @codebook(%input: tensor<?x8xi8>, %scale: tensor<?x1xf32>, %codebook: tensor<16xf32>) -> tensor<?x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %codebook) {
    operand_names = ["input", "scale", "codebook"],
    dtype = "codebook"
  }
      : (tensor<?x8xi8>, tensor<?x1xf32>, tensor<16xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// One power-of-two scale per 32 codes.
// CHECK-LABEL: func.func @mx(
// CHECK: "qmlir.dequant"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "scale"]}
// CHECK-SAME: : (tensor<2x64xf8E5M2>, tensor<2x2xf8E8M0FNU>) -> tensor<2x64xf32>
func.func @mx(%input: tensor<2x64xf8E5M2>, %scale: tensor<2x2xf8E8M0FNU>) -> tensor<2x64xf32> {
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<2x64xf8E5M2>, tensor<2x2xf8E8M0FNU>) -> tensor<2x64xf32>
  return %0 : tensor<2x64xf32>
}
