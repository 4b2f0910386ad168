// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// The default layouts are NHWC and FHWC.
// CHECK-LABEL: func.func @raw(
// CHECK: "qmlir.conv2d_q"(%{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "weight"]}
// CHECK-SAME: : (tensor<1x8x8x3xi8>, tensor<16x3x3x3xi8>) -> tensor<1x6x6x16xi32>
func.func @raw(%input: tensor<1x8x8x3xi8>, %weight: tensor<16x3x3x3xi8>) -> tensor<1x6x6x16xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<1x8x8x3xi8>, tensor<16x3x3x3xi8>) -> tensor<1x6x6x16xi32>
  return %0 : tensor<1x6x6x16xi32>
}

// Stride, dilation and asymmetric padding; requantised.
// CHECK-LABEL: func.func @strided(
// CHECK: "qmlir.conv2d_q"(
// CHECK-SAME: {activation = "relu", bias_stage = "acc", dilations = array<i64: 1, 2>, input_zero_mode = "int",
// CHECK-SAME: operand_names = ["input", "weight", "input_scale", "weight_scale", "input_zero_point", "bias", "out_scale", "out_zero_point"],
// CHECK-SAME: padding = array<i64: 0, 2, 1, 2>, strides = array<i64: 2, 2>}
// CHECK-SAME: : (tensor<?x8x8x4xi8>, tensor<16x3x3x4xi8>, tensor<f32>, tensor<16x1x1x1xf32>, tensor<i8>,
// CHECK-SAME: tensor<16xi32>, tensor<f32>, tensor<i8>) -> tensor<?x4x4x16xi8>
func.func @strided(%input: tensor<?x8x8x4xi8>, %weight: tensor<16x3x3x4xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<16x1x1x1xf32>, %lhs_zero_point: tensor<i8>, %bias: tensor<16xi32>, %out_scale: tensor<f32>,
    %out_zero_point: tensor<i8>) -> tensor<?x4x4x16xi8> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_scale, %rhs_scale, %lhs_zero_point, %bias, %out_scale,
      %out_zero_point) {
    operand_names = ["input", "weight", "input_scale", "weight_scale", "input_zero_point", "bias", "out_scale", "out_zero_point"],
    strides = array<i64: 2, 2>, dilations = array<i64: 1, 2>, padding = array<i64: 0, 2, 1, 2>,
        input_zero_mode = "int", bias_stage = "acc", activation = "relu"
  }
      : (tensor<?x8x8x4xi8>, tensor<16x3x3x4xi8>, tensor<f32>, tensor<16x1x1x1xf32>, tensor<i8>, tensor<16xi32>,
          tensor<f32>, tensor<i8>) -> tensor<?x4x4x16xi8>
  return %0 : tensor<?x4x4x16xi8>
}

// NCHW with groups.
// CHECK-LABEL: func.func @grouped(
// CHECK: "qmlir.conv2d_q"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {groups = 2 : i64, input_layout = "NCHW",
// CHECK-SAME: operand_names = ["input", "weight", "input_scale", "weight_scale", "bias"], weight_layout = "FCHW"}
// CHECK-SAME: : (tensor<1x4x5x6xi8>, tensor<6x2x3x3xi8>, tensor<f32>, tensor<6xf32>,
// CHECK-SAME: tensor<6x1x1xf32>) -> tensor<1x6x3x4xf32>
func.func @grouped(%input: tensor<1x4x5x6xi8>, %weight: tensor<6x2x3x3xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<6xf32>, %bias: tensor<6x1x1xf32>) -> tensor<1x6x3x4xf32> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_scale, %rhs_scale, %bias) {
    operand_names = ["input", "weight", "input_scale", "weight_scale", "bias"],
    input_layout = "NCHW", weight_layout = "FCHW", groups = 2 : i64
  }
      : (tensor<1x4x5x6xi8>, tensor<6x2x3x3xi8>, tensor<f32>, tensor<6xf32>, tensor<6x1x1xf32>) -> tensor<1x6x3x4xf32>
  return %0 : tensor<1x6x3x4xf32>
}

// Depthwise: one filter per channel; unsigned input, weight layout HWCF.
// CHECK-LABEL: func.func @depthwise(
// CHECK: "qmlir.conv2d_q"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {groups = 4 : i64, input_dtype = "u8",
// CHECK-SAME: operand_names = ["input", "weight", "input_scale", "weight_scale", "weight_zero_point"], weight_layout = "HWCF", weight_zero_mode = "int"}
// CHECK-SAME: : (tensor<1x8x8x4xi8>, tensor<3x3x1x4xi8>, tensor<f32>, tensor<1x1x1x4xf32>,
// CHECK-SAME: tensor<1x1x1x4xi32>) -> tensor<1x6x6x4xf32>
func.func @depthwise(%input: tensor<1x8x8x4xi8>, %weight: tensor<3x3x1x4xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<1x1x1x4xf32>, %rhs_zero_point: tensor<1x1x1x4xi32>) -> tensor<1x6x6x4xf32> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_scale, %rhs_scale, %rhs_zero_point) {
    operand_names = ["input", "weight", "input_scale", "weight_scale", "weight_zero_point"],
    weight_layout = "HWCF", groups = 4 : i64, input_dtype = "u8", weight_zero_mode = "int"
  }
      : (tensor<1x8x8x4xi8>, tensor<3x3x1x4xi8>, tensor<f32>, tensor<1x1x1x4xf32>, tensor<1x1x1x4xi32>)
          -> tensor<1x6x6x4xf32>
  return %0 : tensor<1x6x6x4xf32>
}

// A transposed convolution: the output is larger than the input.
// CHECK-LABEL: func.func @transposed(
// CHECK: "qmlir.conv2d_q"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "weight", "input_scale", "weight_scale"],
// CHECK-SAME: output_padding = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>,
// CHECK-SAME: transposed = true}
// CHECK-SAME: : (tensor<1x4x4x8xi8>, tensor<4x3x3x8xi8>, tensor<f32>, tensor<f32>) -> tensor<1x8x8x4xf32>
func.func @transposed(%input: tensor<1x4x4x8xi8>, %weight: tensor<4x3x3x8xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<f32>) -> tensor<1x8x8x4xf32> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_scale, %rhs_scale) {
    operand_names = ["input", "weight", "input_scale", "weight_scale"],
    transposed = true, strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 1, 1>
  }
      : (tensor<1x4x4x8xi8>, tensor<4x3x3x8xi8>, tensor<f32>, tensor<f32>) -> tensor<1x8x8x4xf32>
  return %0 : tensor<1x8x8x4xf32>
}

// Packed int4 weights, a float input, dynamic height and width.
// CHECK-LABEL: func.func @weight_only(
// CHECK: "qmlir.conv2d_q"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["input", "weight", "weight_scale"],
// CHECK-SAME: weight_dtype = "i4", weight_packing = "low_first"}
// CHECK-SAME: : (tensor<1x?x?x3xf32>, tensor<8x3x3x2xi8>, tensor<8xf32>) -> tensor<1x?x?x8xf32>
func.func @weight_only(%input: tensor<1x?x?x3xf32>, %weight: tensor<8x3x3x2xi8>, %rhs_scale: tensor<8xf32>)
    -> tensor<1x?x?x8xf32> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %rhs_scale) {
    operand_names = ["input", "weight", "weight_scale"],
    weight_dtype = "i4", weight_packing = "low_first"
  }
      : (tensor<1x?x?x3xf32>, tensor<8x3x3x2xi8>, tensor<8xf32>) -> tensor<1x?x?x8xf32>
  return %0 : tensor<1x?x?x8xf32>
}
