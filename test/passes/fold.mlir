// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-fold,qmlir-verify | filecheck %s
// RUN: qmlir-opt %s --pass-pipeline='qmlir-fold{unpack-weights=false}' | filecheck %s --check-prefix=PACKED

// Packed int4 codes, an odd N: one code a byte.
// CHECK-LABEL: func.func @packed(
// CHECK: %[[W:.*]] = arith.constant dense<{{\[}}[1, 2, 3], [3, 4, 4], [5, 6, 5], [7, -8, 6]]> : tensor<4x3xi8>
// CHECK: "qmlir.scaled_matmul"(%{{.*}}, %[[W]]) {{.*}}rhs_dtype = "i4"} :
// PACKED-LABEL: func.func @packed(
// PACKED: rhs_packing = "low_first"
func.func @packed(%x: tensor<2x4xi8>) -> tensor<2x3xf32> {
  %w = arith.constant dense<[[33, 3], [67, 4], [101, 5], [-121, 6]]> : tensor<4x2xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4", rhs_packing = "low_first"
  } : (tensor<2x4xi8>, tensor<4x2xi8>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// High nibble first, unsigned.
// CHECK-LABEL: func.func @packed_high(
// CHECK: arith.constant dense<{{\[}}[1, 2, 3, 4], [15, 15, 0, 15]]> : tensor<2x4xi8>
// CHECK: rhs_dtype = "u4"} :
func.func @packed_high(%x: tensor<2x2xi8>) -> tensor<2x4xi32> {
  %w = arith.constant dense<[[18, 52], [-1, 15]]> : tensor<2x2xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "u4", rhs_packing = "high_first"
  } : (tensor<2x2xi8>, tensor<2x2xi8>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}

// The value of a 1-bit code q is 2q - 1.
// CHECK-LABEL: func.func @one_bit(
// CHECK: arith.constant dense<{{\[}}[1, -1, 1, -1, -1, 1, -1, 1]]> : tensor<1x8xi8>
// CHECK: rhs_dtype = "i8"} :
func.func @one_bit(%x: tensor<2x1xi8>) -> tensor<2x8xi32> {
  %w = arith.constant dense<[[-91]]> : tensor<1x1xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i1", rhs_packing = "low_first"
  } : (tensor<2x1xi8>, tensor<1x1xi8>) -> tensor<2x8xi32>
  return %0 : tensor<2x8xi32>
}

// Table codes are unpacked, but stay codes.
// CHECK-LABEL: func.func @table(
// CHECK: arith.constant dense<{{\[}}[1, 2]]> : tensor<1x2xi8>
// CHECK: rhs_dtype = "nf4"} :
func.func @table(%x: tensor<2x1xf32>) -> tensor<2x2xf32> {
  %w = arith.constant dense<[[33]]> : tensor<1x1xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "nf4", rhs_packing = "low_first"
  } : (tensor<2x1xf32>, tensor<1x1xi8>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// Weights that are not constant stay packed.
// CHECK-LABEL: func.func @packed_argument(
// CHECK: "qmlir.scaled_matmul"(%arg0, %arg1) {{.*}}rhs_packing = "low_first"
func.func @packed_argument(%x: tensor<2x4xi8>, %w: tensor<4x2xi8>) -> tensor<2x3xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4", rhs_packing = "low_first"
  } : (tensor<2x4xi8>, tensor<4x2xi8>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// Weights with packed zero points stay packed, because `rhs_packing` states the packing of both.
// CHECK-LABEL: func.func @packed_zero(
// CHECK: rhs_packing = "low_first"
func.func @packed_zero(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %w = arith.constant dense<[[18], [52]]> : tensor<2x1xi8>
  %s = arith.constant dense<1.0> : tensor<1x2xf32>
  %z = arith.constant dense<[[18]]> : tensor<1x1xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w, %s, %z) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"],
    rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"
  } : (tensor<2x2xf32>, tensor<2x1xi8>, tensor<1x2xf32>, tensor<1x1xi8>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// A constant filter is transposed to FHWC, the default, and its scale and zero point with it.
// CHECK-LABEL: func.func @filter(
// CHECK-DAG: %[[S:.*]] = arith.constant dense<{{\[\[\[\[}}1.000000e+00]]], {{\[\[\[}}2.000000e+00]]], {{\[\[\[}}3.000000e+00]]]]> : tensor<3x1x1x1xf32>
// CHECK-DAG: %[[W:.*]] = arith.constant dense<{{\[\[\[\[}}1, 4]], {{\[\[}}7, 10]]], {{\[\[\[}}2, 5]], {{\[\[}}8, 11]]], {{\[\[\[}}3, 6]], {{\[\[}}9, 12]]]]> : tensor<3x2x1x2xi8>
// CHECK: "qmlir.conv2d_q"(%{{[^,]*}}, %[[W]], %[[S]], %{{[^,]*}}) {operand_names = ["input", "weight", "weight_scale", "weight_zero_point"], weight_zero_mode = "int"} :
func.func @filter(%x: tensor<1x4x4x2xi8>) -> tensor<1x3x4x3xf32> {
  %w = arith.constant dense<[[[[1, 2, 3], [4, 5, 6]]], [[[7, 8, 9], [10, 11, 12]]]]> : tensor<2x1x2x3xi8>
  %s = arith.constant dense<[[[[1.0, 2.0, 3.0]]]]> : tensor<1x1x1x3xf32>
  %z = arith.constant dense<[[[[1, 2, 3]]]]> : tensor<1x1x1x3xi32>
  %0 = "qmlir.conv2d_q"(%x, %w, %s, %z) {
    operand_names = ["input", "weight", "weight_scale", "weight_zero_point"],
    weight_layout = "HWCF", weight_zero_mode = "int"
  } : (tensor<1x4x4x2xi8>, tensor<2x1x2x3xi8>, tensor<1x1x1x3xf32>, tensor<1x1x1x3xi32>) -> tensor<1x3x4x3xf32>
  return %0 : tensor<1x3x4x3xf32>
}

// A filter that is not constant keeps its layout.
// CHECK-LABEL: func.func @filter_argument(
// CHECK: "qmlir.conv2d_q"(%arg0, %arg1) {{.*}}weight_layout = "HWCF"
func.func @filter_argument(%x: tensor<1x4x4x2xi8>, %w: tensor<2x1x2x3xi8>) -> tensor<1x3x4x3xi32> {
  %0 = "qmlir.conv2d_q"(%x, %w) {
    operand_names = ["input", "weight"],
    weight_layout = "HWCF"
  } : (tensor<1x4x4x2xi8>, tensor<2x1x2x3xi8>) -> tensor<1x3x4x3xi32>
  return %0 : tensor<1x3x4x3xi32>
}

// A filter whose scale is not constant keeps its layout, too.
// CHECK-LABEL: func.func @filter_scale(
// CHECK: "qmlir.conv2d_q"({{.*}}) {{.*}}weight_layout = "HWCF"
func.func @filter_scale(%x: tensor<1x4x4x2xi8>, %s: tensor<1x1x1x3xf32>) -> tensor<1x3x4x3xf32> {
  %w = arith.constant dense<1> : tensor<2x1x2x3xi8>
  %0 = "qmlir.conv2d_q"(%x, %w, %s) {
    operand_names = ["input", "weight", "weight_scale"],
    weight_layout = "HWCF"
  } : (tensor<1x4x4x2xi8>, tensor<2x1x2x3xi8>, tensor<1x1x1x3xf32>) -> tensor<1x3x4x3xf32>
  return %0 : tensor<1x3x4x3xf32>
}

// u8 codes become i8 codes minus 128; the zero point 253 (stored as -3) is shifted with them.
// CHECK-LABEL: func.func @unsigned(
// CHECK-DAG: %[[W:.*]] = arith.constant dense<{{\[}}[-128, -127, -1], [0, 1, 127]]> : tensor<2x3xi8>
// CHECK-DAG: %[[Z:.*]] = arith.constant dense<125> : tensor<i32>
// CHECK: "qmlir.scaled_matmul"(%{{.*}}, %[[W]], %[[Z]]) {{.*}}rhs_dtype = "i8"{{.*}}rhs_zero_mode = "int"
func.func @unsigned(%x: tensor<2x2xi8>) -> tensor<2x3xi32> {
  %w = arith.constant dense<[[0, 1, 127], [-128, -127, -1]]> : tensor<2x3xi8>
  %z = arith.constant dense<-3> : tensor<i8>
  %0 = "qmlir.scaled_matmul"(%x, %w, %z) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_dtype = "u8", rhs_zero_mode = "int"
  } : (tensor<2x2xi8>, tensor<2x3xi8>, tensor<i8>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// If there is no zero point, the shift adds one.
// CHECK-LABEL: func.func @unsigned_plain(
// CHECK-DAG: %[[W:.*]] = arith.constant dense<{{\[}}[-128, 127]]> : tensor<1x2xi8>
// CHECK-DAG: %[[Z:.*]] = arith.constant dense<-128> : tensor<i32>
// CHECK: "qmlir.scaled_matmul"(%{{.*}}, %[[W]], %[[Z]]) {{.*}}rhs_zero_mode = "int"
func.func @unsigned_plain(%x: tensor<2x1xi8>) -> tensor<2x2xi32> {
  %w = arith.constant dense<[[0, -1]]> : tensor<1x2xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "u8"
  } : (tensor<2x1xi8>, tensor<1x2xi8>) -> tensor<2x2xi32>
  return %0 : tensor<2x2xi32>
}

// Codes stay unsigned if their zero point is not constant.
// CHECK-LABEL: func.func @unsigned_argument(
// CHECK: rhs_dtype = "u8"
func.func @unsigned_argument(%x: tensor<2x1xi8>, %z: tensor<i32>) -> tensor<2x2xi32> {
  %w = arith.constant dense<[[0, -1]]> : tensor<1x2xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w, %z) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_dtype = "u8", rhs_zero_mode = "int"
  } : (tensor<2x1xi8>, tensor<1x2xi8>, tensor<i32>) -> tensor<2x2xi32>
  return %0 : tensor<2x2xi32>
}

// Codes stay unsigned if their zero mode is defined on unsigned codes (`offset_int`).
// CHECK-LABEL: func.func @unsigned_offset(
// CHECK: rhs_dtype = "u8"{{.*}}rhs_zero_mode = "offset_int"
func.func @unsigned_offset(%x: tensor<2x1xi8>) -> tensor<2x2xi32> {
  %w = arith.constant dense<[[0, -1]]> : tensor<1x2xi8>
  %z = arith.constant dense<3> : tensor<i32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %z) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_dtype = "u8", rhs_zero_mode = "offset_int"
  } : (tensor<2x1xi8>, tensor<1x2xi8>, tensor<i32>) -> tensor<2x2xi32>
  return %0 : tensor<2x2xi32>
}

// Two constant scales become one, their product.
// CHECK-LABEL: func.func @scales(
// CHECK: %[[S:.*]] = arith.constant dense<{{\[}}[5.000000e-01, 1.000000e+00, 1.500000e+00]]> : tensor<1x3xf32>
// CHECK: "qmlir.scaled_matmul"(%arg0, %arg1, %[[S]]) {{.*}}operand_names = ["lhs", "rhs", "rhs_scale"]
func.func @scales(%x: tensor<2x2xi8>, %w: tensor<2x3xi8>) -> tensor<2x3xf32> {
  %a = arith.constant dense<0.5> : tensor<f32>
  %b = arith.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %a, %b) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  } : (tensor<2x2xi8>, tensor<2x3xi8>, tensor<f32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// The scales stay if one of them is not constant.
// CHECK-LABEL: func.func @scales_argument(
// CHECK: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
func.func @scales_argument(%x: tensor<2x2xi8>, %w: tensor<2x3xi8>, %a: tensor<f32>) -> tensor<2x3xf32> {
  %b = arith.constant dense<1.0> : tensor<1x3xf32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %a, %b) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  } : (tensor<2x2xi8>, tensor<2x3xi8>, tensor<f32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// The scales stay if the lhs has one scale per token.
// CHECK-LABEL: func.func @scales_token(
// CHECK: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
func.func @scales_token(%x: tensor<2x2xi8>, %w: tensor<2x3xi8>) -> tensor<2x3xf32> {
  %a = arith.constant dense<[[0.5], [0.25]]> : tensor<2x1xf32>
  %b = arith.constant dense<1.0> : tensor<1x3xf32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %a, %b) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  } : (tensor<2x2xi8>, tensor<2x3xi8>, tensor<2x1xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// The scale of a float operand stays: without it, the operand would count as not quantised.
// CHECK-LABEL: func.func @scales_float(
// CHECK: operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
func.func @scales_float(%x: tensor<2x2xf32>, %w: tensor<2x3xi8>) -> tensor<2x3xf32> {
  %a = arith.constant dense<0.5> : tensor<f32>
  %b = arith.constant dense<1.0> : tensor<1x3xf32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %a, %b) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale"]
  } : (tensor<2x2xf32>, tensor<2x3xi8>, tensor<f32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// Several folds at once: packed u4 weights are unpacked, and the scales multiplied.
// CHECK-LABEL: func.func @together(
// CHECK-DAG: %[[W:.*]] = arith.constant dense<{{\[}}[2, 1], [4, 3]]> : tensor<2x2xi8>
// CHECK-DAG: %[[S:.*]] = arith.constant dense<{{\[}}[1.000000e+00, 2.000000e+00]]> : tensor<1x2xf32>
// CHECK: "qmlir.scaled_matmul"(%{{.*}}, %[[W]], %[[S]], %{{[^,)]*}})
func.func @together(%x: tensor<2x2xi8>) -> tensor<2x2xf32> {
  %w = arith.constant dense<[[18], [52]]> : tensor<2x1xi8>
  %a = arith.constant dense<0.5> : tensor<f32>
  %b = arith.constant dense<[[2.0, 4.0]]> : tensor<1x2xf32>
  %z = arith.constant dense<7> : tensor<i32>
  %0 = "qmlir.scaled_matmul"(%x, %w, %a, %b, %z) {
    operand_names = ["lhs", "rhs", "lhs_scale", "rhs_scale", "lhs_zero_point"],
    rhs_dtype = "u4", rhs_packing = "low_first", lhs_zero_mode = "int"
  } : (tensor<2x2xi8>, tensor<2x1xi8>, tensor<f32>, tensor<1x2xf32>, tensor<i32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
