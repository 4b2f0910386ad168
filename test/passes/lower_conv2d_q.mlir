// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse | filecheck %s

// Every convolution is lowered to one implicit GEMM with input NHWC and weight FHWC.

// A plain convolution is one named convolution with the bounds of the codes.
// CHECK-LABEL: func.func @plain(
// CHECK: linalg.conv_2d_nhwc_fhwc {qmlir.lhs_magnitude = 128 : i64, qmlir.rhs_magnitude = 128 : i64, dilations = dense<[1, 2]> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>} ins(%arg0, %arg1
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @plain(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x3x2x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    strides = array<i64: 2, 2>, dilations = array<i64: 1, 2>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x3x2x6xi32>
  return %0 : tensor<1x3x2x6xi32>
}

// Without a zero point, the padding is the code 0.
// CHECK-LABEL: func.func @padded(
// CHECK: %[[Z:.*]] = arith.constant 0 : i8
// CHECK: tensor.pad %arg0 low[0, 1, 0, 0] high[0, 2, 3, 0]
// CHECK: tensor.yield %[[Z]]
// CHECK: tensor<1x8x8x4xi8> to tensor<1x11x11x4xi8>
func.func @padded(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x9x9x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    padding = array<i64: 1, 0, 2, 3>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x9x9x6xi32>
  return %0 : tensor<1x9x9x6xi32>
}

// With a zero point, the padding is the zero point, and the correction is a sum over whole filters.
// CHECK-LABEL: func.func @padded_zero(
// CHECK: %[[Z:.*]] = tensor.extract %arg2[]
// CHECK: tensor.pad %arg0
// CHECK: tensor.yield
// CHECK: %[[ACC:.*]] = linalg.conv_2d_nhwc_fhwc
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<6x3x3x4xi8>)
// CHECK: arith.addi %out
// CHECK: linalg.generic {{.*}} ins(%[[ACC]], %arg2, %[[SUM]]
// CHECK: arith.muli
// CHECK-NEXT: arith.subi
func.func @padded_zero(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %lhs_zero_point: tensor<i8>)
    -> tensor<1x8x8x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_zero_point) {
    operand_names = ["input", "weight", "input_zero_point"],
    padding = array<i64: 1, 1, 1, 1>, input_zero_mode = "int"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<i8>) -> tensor<1x8x8x6xi32>
  return %0 : tensor<1x8x8x6xi32>
}

// The sums of a constant weight are constants in any layout; without a zero point or unsigned codes there are none.
// CHECK-LABEL: func.func @constant_sums(
// CHECK: arith.constant dense<[3, 1]> : tensor<2xi32>
// CHECK-NOT: arith.addi %out
// CHECK-LABEL: func.func @constant_sums_hwcf(
// CHECK: arith.constant dense<[3, 1]> : tensor<2xi32>
// CHECK-NOT: arith.addi %out
// CHECK-LABEL: func.func @no_sums(
// CHECK-NOT: tensor<2xi32>
// CHECK: return
func.func @constant_sums(%x: tensor<1x2x2x2xi8>) -> tensor<1x2x2x2xi32> {
  %w = arith.constant dense<[[[[1, 2]]], [[[-3, 4]]]]> : tensor<2x1x1x2xi8>
  %0 = "qmlir.conv2d_q"(%x, %w) {operand_names = ["input", "weight"], input_dtype = "u8"}
      : (tensor<1x2x2x2xi8>, tensor<2x1x1x2xi8>) -> tensor<1x2x2x2xi32>
  return %0 : tensor<1x2x2x2xi32>
}
func.func @constant_sums_hwcf(%x: tensor<1x2x2x2xi8>) -> tensor<1x2x2x2xi32> {
  %w = arith.constant dense<[[[[1, -3], [2, 4]]]]> : tensor<1x1x2x2xi8>
  %0 = "qmlir.conv2d_q"(%x, %w) {operand_names = ["input", "weight"], input_dtype = "u8", weight_layout = "HWCF"}
      : (tensor<1x2x2x2xi8>, tensor<1x1x2x2xi8>) -> tensor<1x2x2x2xi32>
  return %0 : tensor<1x2x2x2xi32>
}
func.func @no_sums(%x: tensor<1x2x2x2xi8>) -> tensor<1x2x2x2xi32> {
  %w = arith.constant dense<[[[[1, 2]]], [[[-3, 4]]]]> : tensor<2x1x1x2xi8>
  %0 = "qmlir.conv2d_q"(%x, %w) {operand_names = ["input", "weight"]}
      : (tensor<1x2x2x2xi8>, tensor<2x1x1x2xi8>) -> tensor<1x2x2x2xi32>
  return %0 : tensor<1x2x2x2xi32>
}

// A zero point of the weight: the sums over windows are a convolution by one filter of ones.
// CHECK-LABEL: func.func @weight_zero(
// CHECK: %[[ONES:.*]] = arith.constant dense<1> : tensor<1x3x3x4xi8>
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}} ins(%arg0, %arg1
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}} ins(%arg0, %[[ONES]]
// CHECK: arith.muli
// CHECK-NEXT: arith.subi
func.func @weight_zero(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %rhs_zero_point: tensor<6xi32>)
    -> tensor<1x6x6x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %rhs_zero_point) {
    operand_names = ["input", "weight", "weight_zero_point"],
    weight_zero_mode = "int"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<6xi32>) -> tensor<1x6x6x6xi32>
  return %0 : tensor<1x6x6x6xi32>
}

// A u8 input is biased by an exclusive or; the padding is the biased 0.
// CHECK-LABEL: func.func @unsigned(
// CHECK-DAG: %[[BIT:.*]] = arith.constant -128 : i8
// CHECK: arith.xori %{{.*}}, %[[BIT]] : i8
// CHECK: tensor.pad
// CHECK: tensor.yield %[[BIT]]
func.func @unsigned(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x8x8x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    input_dtype = "u8", padding = array<i64: 1, 1, 1, 1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x8x8x6xi32>
  return %0 : tensor<1x8x8x6xi32>
}

// NCHW images are transposed at input and result, and an FCHW filter too.
// CHECK-LABEL: func.func @nchw(
// CHECK-DAG: linalg.transpose ins(%arg0 : tensor<1x4x8x8xi8>) {{.*}} permutation = [0, 2, 3, 1]
// CHECK-DAG: linalg.transpose ins(%arg1 : tensor<6x4x3x3xi8>) {{.*}} permutation = [0, 2, 3, 1]
// CHECK: linalg.conv_2d_nhwc_fhwc
// CHECK: linalg.transpose {{.*}} permutation = [0, 3, 1, 2]
func.func @nchw(%input: tensor<1x4x8x8xi8>, %weight: tensor<6x4x3x3xi8>) -> tensor<1x6x6x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    input_layout = "NCHW", weight_layout = "FCHW"
  }
      : (tensor<1x4x8x8xi8>, tensor<6x4x3x3xi8>) -> tensor<1x6x6x6xi32>
  return %0 : tensor<1x6x6x6xi32>
}

// Groups become a separate axis.
// CHECK-LABEL: func.func @grouped(
// CHECK-DAG: tensor.expand_shape %arg0 {{.*}} output_shape [1, 8, 8, 2, 2]
// CHECK-DAG: tensor.expand_shape %arg1 {{.*}} output_shape [2, 3, 3, 3, 2]
// CHECK: linalg.conv_2d_nhwgc_gfhwc
// CHECK: tensor.collapse_shape {{.*}} : tensor<1x6x6x2x3xi32> into tensor<1x6x6x6xi32>
func.func @grouped(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x2xi8>) -> tensor<1x6x6x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    groups = 2 : i64
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x2xi8>) -> tensor<1x6x6x6xi32>
  return %0 : tensor<1x6x6x6xi32>
}

// One filter per channel: a depthwise convolution.
// CHECK-LABEL: func.func @depthwise(
// CHECK: linalg.transpose {{.*}} permutation = [1, 2, 0]
// CHECK: linalg.depthwise_conv_2d_nhwc_hwc
// CHECK-NOT: linalg.conv_2d
// CHECK: return
func.func @depthwise(%input: tensor<1x8x8x4xi8>, %weight: tensor<4x3x3x1xi8>) -> tensor<1x6x6x4xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    groups = 4 : i64
  }
      : (tensor<1x8x8x4xi8>, tensor<4x3x3x1xi8>) -> tensor<1x6x6x4xi32>
  return %0 : tensor<1x6x6x4xi32>
}

// A transposed convolution: the input is spread by the stride, the kernel is rotated, and the stride becomes 1.
// CHECK-LABEL: func.func @transposed(
// CHECK: tensor.pad %{{.*}} low[0, 0, 0, 0, 0, 0] high[0, 0, 1, 0, 1, 0]
// CHECK: tensor.collapse_shape %{{.*}} : tensor<1x4x2x4x2x8xi8> into tensor<1x8x8x8xi8>
// CHECK: linalg.index 1
// CHECK: arith.subi
// CHECK: tensor.extract %arg1
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}}dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
func.func @transposed(%input: tensor<1x4x4x8xi8>, %weight: tensor<4x3x3x8xi8>) -> tensor<1x8x8x4xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    transposed = true, strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>, output_padding = array<i64: 1, 1>
  }
      : (tensor<1x4x4x8xi8>, tensor<4x3x3x8xi8>) -> tensor<1x8x8x4xi32>
  return %0 : tensor<1x8x8x4xi32>
}

// Weight only: the filter is dequantised to the input's type, and the sum is in f32.
// CHECK-LABEL: func.func @weight_only(
// CHECK: arith.sitofp %{{.*}} : i8 to f32
// CHECK: arith.mulf
// CHECK-NEXT: arith.truncf %{{.*}} : f32 to f16
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}} ins(%arg0, %{{.*}} : tensor<1x8x8x4xf16>, tensor<6x3x3x4xf16>) outs(%{{.*}} : tensor<1x6x6x6xf32>)
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @weight_only(%input: tensor<1x8x8x4xf16>, %weight: tensor<6x3x3x4xi8>, %rhs_scale: tensor<6xf32>)
    -> tensor<1x6x6x6xf16> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %rhs_scale) {
    operand_names = ["input", "weight", "weight_scale"]
  }
      : (tensor<1x8x8x4xf16>, tensor<6x3x3x4xi8>, tensor<6xf32>) -> tensor<1x6x6x6xf16>
  return %0 : tensor<1x6x6x6xf16>
}

// An i32 bias, per-filter scales, relu and requantisation are one generic.
// CHECK-LABEL: func.func @requantized(
// CHECK: linalg.conv_2d_nhwc_fhwc
// CHECK: linalg.generic
// CHECK: arith.addi
// CHECK-NEXT: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.mulf
// CHECK: arith.maximumf
// CHECK: math.roundeven
// CHECK: arith.trunci
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @requantized(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %lhs_scale: tensor<f32>,
    %rhs_scale: tensor<6x1x1x1xf32>, %bias: tensor<6xi32>, %out_scale: tensor<f32>, %out_zero_point: tensor<i8>)
    -> tensor<1x6x6x6xi8> {
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_scale, %rhs_scale, %bias, %out_scale, %out_zero_point) {
    operand_names = ["input", "weight", "input_scale", "weight_scale", "bias", "out_scale", "out_zero_point"],
    bias_stage = "acc", activation = "relu"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<f32>, tensor<6x1x1x1xf32>, tensor<6xi32>, tensor<f32>,
          tensor<i8>) -> tensor<1x6x6x6xi8>
  return %0 : tensor<1x6x6x6xi8>
}

// Dynamic batch, height and width.
// CHECK-LABEL: func.func @dynamic(
// CHECK: tensor.dim %arg0
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}} outs(%{{.*}} : tensor<?x?x?x6xi32>)
func.func @dynamic(%input: tensor<?x?x?x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<?x?x?x6xi32> {
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    strides = array<i64: 2, 1>
  }
      : (tensor<?x?x?x4xi8>, tensor<6x3x3x4xi8>) -> tensor<?x?x?x6xi32>
  return %0 : tensor<?x?x?x6xi32>
}
