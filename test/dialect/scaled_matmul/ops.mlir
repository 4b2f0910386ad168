// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// The raw accumulator.
// CHECK-LABEL: func.func @raw(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs"]}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
func.func @raw(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// Per-token and per-channel scales, zero points for both operands, dynamic M.
// CHECK-LABEL: func.func @w8a8(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {lhs_zero_mode = "int",
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_zero_point", "rhs_zero_point"], rhs_zero_mode = "int"}
// CHECK-SAME: : (tensor<?x64xi8>, tensor<64x32xi8>, tensor<?x1xf32>, tensor<1x32xf32>, tensor<?x1xi32>,
// CHECK-SAME: tensor<1x32xi8>) -> tensor<?x32xf32>
func.func @w8a8(%lhs: tensor<?x64xi8>, %rhs: tensor<64x32xi8>, %lhs_scale: tensor<?x1xf32>,
    %rhs_scale: tensor<1x32xf32>, %lhs_zero_point: tensor<?x1xi32>, %rhs_zero_point: tensor<1x32xi8>)
    -> tensor<?x32xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale, %lhs_zero_point, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_zero_point", "rhs_zero_point"],
    lhs_zero_mode = "int", rhs_zero_mode = "int"
  }
      : (tensor<?x64xi8>, tensor<64x32xi8>, tensor<?x1xf32>, tensor<1x32xf32>, tensor<?x1xi32>, tensor<1x32xi8>)
          -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// The whole epilogue of an int8 result.
// CHECK-LABEL: func.func @requantized(
// CHECK: "qmlir.scaled_matmul"(
// CHECK-SAME: {activation = "relu", bias_stage = "acc", clamp = array<i64: -100, 100>,
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "bias", "out_scale", "out_zero_point"], out_dtype = "i8",
// CHECK-SAME: rhs_transposed = true, rounding = "half_away"}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<16x8xi8>, tensor<f32>, tensor<16x1xf32>, tensor<16xi32>, tensor<f32>,
// CHECK-SAME: tensor<i8>) -> tensor<4x16xi8>
func.func @requantized(%lhs: tensor<4x8xi8>, %rhs: tensor<16x8xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<16x1xf32>, %bias: tensor<16xi32>, %out_scale: tensor<f32>, %out_zero_point: tensor<i8>)
    -> tensor<4x16xi8> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale, %bias, %out_scale, %out_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "bias", "out_scale", "out_zero_point"],
    rhs_transposed = true, bias_stage = "acc", activation = "relu", rounding = "half_away",
        clamp = array<i64: -100, 100>, out_dtype = "i8"
  }
      : (tensor<4x8xi8>, tensor<16x8xi8>, tensor<f32>, tensor<16x1xf32>, tensor<16xi32>, tensor<f32>, tensor<i8>)
          -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// An output multiplier instead of a scale, unsigned codes, CK's rounding (`trunc`).
// CHECK-LABEL: func.func @multiplier(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {lhs_dtype = "u8", operand_names = ["lhs", "rhs", "out_multiplier", "out_zero_point"],
// CHECK-SAME: out_dtype = "u8", rounding = "trunc"}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<1x16xf32>, tensor<i32>) -> tensor<4x16xi8>
func.func @multiplier(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_multiplier: tensor<1x16xf32>,
    %out_zero_point: tensor<i32>) -> tensor<4x16xi8> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_multiplier, %out_zero_point) {
    operand_names = ["lhs", "rhs", "out_multiplier", "out_zero_point"],
    lhs_dtype = "u8", out_dtype = "u8", rounding = "trunc"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<1x16xf32>, tensor<i32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// Packed int4 weights with scales in groups of 32 along K.
// CHECK-LABEL: func.func @groups_int4(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"],
// CHECK-SAME: rhs_dtype = "i4", rhs_packing = "low_first"}
// CHECK-SAME: : (tensor<2x128xi8>, tensor<128x8xi8>, tensor<2x1xf32>, tensor<4x16xf32>) -> tensor<2x16xf32>
func.func @groups_int4(%lhs: tensor<2x128xi8>, %rhs: tensor<128x8xi8>, %lhs_scale: tensor<2x1xf32>,
    %rhs_scale: tensor<4x16xf32>) -> tensor<2x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"],
    rhs_dtype = "i4", rhs_packing = "low_first"
  }
      : (tensor<2x128xi8>, tensor<128x8xi8>, tensor<2x1xf32>, tensor<4x16xf32>) -> tensor<2x16xf32>
  return %0 : tensor<2x16xf32>
}

// f16 activations, 4-bit codes with one float zero point per group.
// CHECK-LABEL: func.func @weight_only(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {bias_stage = "out", compute_dtype = "f32",
// CHECK-SAME: operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point", "bias"],
// CHECK-SAME: rhs_dtype = "u4", rhs_packing = "high_first", rhs_transposed = true, rhs_zero_mode = "offset_float"}
// CHECK-SAME: : (tensor<2x128xf16>, tensor<16x64xi8>, tensor<16x4xf16>, tensor<16x4xf16>,
// CHECK-SAME: tensor<16xf16>) -> tensor<2x16xf16>
func.func @weight_only(%lhs: tensor<2x128xf16>, %rhs: tensor<16x64xi8>, %rhs_scale: tensor<16x4xf16>,
    %rhs_zero_point: tensor<16x4xf16>, %bias: tensor<16xf16>) -> tensor<2x16xf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %rhs_zero_point, %bias) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point", "bias"],
    rhs_dtype = "u4", rhs_packing = "high_first", rhs_zero_mode = "offset_float", rhs_transposed = true, bias_stage = "out",
        compute_dtype = "f32"
  }
      : (tensor<2x128xf16>, tensor<16x64xi8>, tensor<16x4xf16>, tensor<16x4xf16>, tensor<16xf16>) -> tensor<2x16xf16>
  return %0 : tensor<2x16xf16>
}

// Zero points packed like the weights.
// CHECK-LABEL: func.func @packed_zero_points(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"],
// CHECK-SAME: rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"}
// CHECK-SAME: : (tensor<2x128xf32>, tensor<128x8xi8>, tensor<4x16xf32>, tensor<4x8xi8>) -> tensor<2x16xf32>
func.func @packed_zero_points(%lhs: tensor<2x128xf32>, %rhs: tensor<128x8xi8>, %rhs_scale: tensor<4x16xf32>,
    %rhs_zero_point: tensor<4x8xi8>) -> tensor<2x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"],
    rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"
  }
      : (tensor<2x128xf32>, tensor<128x8xi8>, tensor<4x16xf32>, tensor<4x8xi8>) -> tensor<2x16xf32>
  return %0 : tensor<2x16xf32>
}

// Codes are indices into any table of 16 values.
// CHECK-LABEL: func.func @codebook(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "rhs_scale", "codebook"],
// CHECK-SAME: rhs_dtype = "codebook"}
// CHECK-SAME: : (tensor<2x32xbf16>, tensor<32x16xi8>, tensor<1x16xf32>, tensor<16xf32>) -> tensor<2x16xbf16>
func.func @codebook(%lhs: tensor<2x32xbf16>, %rhs: tensor<32x16xi8>, %rhs_scale: tensor<1x16xf32>,
    %codebook: tensor<16xf32>) -> tensor<2x16xbf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %codebook) {
    operand_names = ["lhs", "rhs", "rhs_scale", "codebook"],
    rhs_dtype = "codebook"
  }
      : (tensor<2x32xbf16>, tensor<32x16xi8>, tensor<1x16xf32>, tensor<16xf32>) -> tensor<2x16xbf16>
  return %0 : tensor<2x16xbf16>
}

// 4-bit floats (e2m1): one scale per 16 codes and one per tensor.
// CHECK-LABEL: func.func @nvfp4(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {lhs_dtype = "e2m1",
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_global_scale", "rhs_global_scale"], rhs_dtype = "e2m1",
// CHECK-SAME: rhs_transposed = true}
// CHECK-SAME: : (tensor<2x64xi8>, tensor<16x64xi8>, tensor<2x4xf8E4M3FN>, tensor<16x4xf8E4M3FN>, tensor<f32>,
// CHECK-SAME: tensor<f32>) -> tensor<2x16xf32>
func.func @nvfp4(%lhs: tensor<2x64xi8>, %rhs: tensor<16x64xi8>, %lhs_scale: tensor<2x4xf8E4M3FN>,
    %rhs_scale: tensor<16x4xf8E4M3FN>, %lhs_global_scale: tensor<f32>, %rhs_global_scale: tensor<f32>)
    -> tensor<2x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale, %lhs_global_scale, %rhs_global_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_global_scale", "rhs_global_scale"],
    lhs_dtype = "e2m1", rhs_dtype = "e2m1", rhs_transposed = true
  }
      : (tensor<2x64xi8>, tensor<16x64xi8>, tensor<2x4xf8E4M3FN>, tensor<16x4xf8E4M3FN>, tensor<f32>, tensor<f32>)
          -> tensor<2x16xf32>
  return %0 : tensor<2x16xf32>
}

// 8-bit float codes.
// CHECK-LABEL: func.func @fp8(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]}
// CHECK-SAME: : (tensor<4x8xf8E4M3FN>, tensor<8x16xf8E5M2>, tensor<f32>, tensor<f32>) -> tensor<4x16xbf16>
func.func @fp8(%lhs: tensor<4x8xf8E4M3FN>, %rhs: tensor<8x16xf8E5M2>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<f32>) -> tensor<4x16xbf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  }
      : (tensor<4x8xf8E4M3FN>, tensor<8x16xf8E5M2>, tensor<f32>, tensor<f32>) -> tensor<4x16xbf16>
  return %0 : tensor<4x16xbf16>
}

// Batch axes broadcast; both operands transposed; alpha, beta and C.
// CHECK-LABEL: func.func @batched(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {alpha = 5.000000e-01 : f32, beta = 2.000000e+00 : f32, lhs_transposed = true,
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "c"],
// CHECK-SAME: rhs_transposed = true}
// CHECK-SAME: : (tensor<2x1x8x4xi8>, tensor<3x16x8xi8>, tensor<f32>, tensor<f32>,
// CHECK-SAME: tensor<4x16xf32>) -> tensor<2x3x4x16xf32>
func.func @batched(%lhs: tensor<2x1x8x4xi8>, %rhs: tensor<3x16x8xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<f32>, %c: tensor<4x16xf32>) -> tensor<2x3x4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale, %c) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "c"],
    lhs_transposed = true, rhs_transposed = true, alpha = 5.000000e-01 : f32, beta = 2.000000e+00 : f32
  }
      : (tensor<2x1x8x4xi8>, tensor<3x16x8xi8>, tensor<f32>, tensor<f32>, tensor<4x16xf32>) -> tensor<2x3x4x16xf32>
  return %0 : tensor<2x3x4x16xf32>
}

// A gated activation makes one column of each pair of adjacent columns.
// CHECK-LABEL: func.func @gated(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {activation = "swiglu", gate_layout = "interleaved",
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "act_scale"]}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<8x32xi8>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<4x16xf16>
func.func @gated(%lhs: tensor<4x8xi8>, %rhs: tensor<8x32xi8>, %lhs_scale: tensor<f32>, %rhs_scale: tensor<f32>,
    %act_scale: tensor<f32>) -> tensor<4x16xf16> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale, %act_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "act_scale"],
    activation = "swiglu", gate_layout = "interleaved"
  }
      : (tensor<4x8xi8>, tensor<8x32xi8>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}

// A clamp with bounds; two scales along M and four along N.
// CHECK-LABEL: func.func @clamped(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {act_clamp = array<f64: -1.000000e+00, 6.500000e+00>, activation = "clamp", bias_stage = "scaled",
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "bias"]}
// CHECK-SAME: : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<2x1xf32>, tensor<1x4xf32>,
// CHECK-SAME: tensor<16xf32>) -> tensor<4x16xf32>
func.func @clamped(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<2x1xf32>,
    %rhs_scale: tensor<1x4xf32>, %bias: tensor<16xf32>) -> tensor<4x16xf32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "bias"],
    activation = "clamp", act_clamp = array<f64: -1.000000e+00, 6.500000e+00>, bias_stage = "scaled"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<2x1xf32>, tensor<1x4xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// The largest K whose worst case is exact in i32: 128 * 128 * 131071.
// CHECK-LABEL: func.func @longest_sum(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs"]}
// CHECK-SAME: : (tensor<4x131071xi8>, tensor<131071x16xi8>) -> tensor<4x16xi32>
func.func @longest_sum(%lhs: tensor<4x131071xi8>, %rhs: tensor<131071x16xi8>) -> tensor<4x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x131071xi8>, tensor<131071x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// M and K are 0.
// CHECK-LABEL: func.func @empty(
// CHECK: "qmlir.scaled_matmul"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs"]}
// CHECK-SAME: : (tensor<0x0xi8>, tensor<0x16xi8>) -> tensor<0x16xi32>
func.func @empty(%lhs: tensor<0x0xi8>, %rhs: tensor<0x16xi8>) -> tensor<0x16xi32> {
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<0x0xi8>, tensor<0x16xi8>) -> tensor<0x16xi32>
  return %0 : tensor<0x16xi32>
}
