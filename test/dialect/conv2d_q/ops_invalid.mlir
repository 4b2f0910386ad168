// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

// === Structure and attributes

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{has no operand 'wieght'; did you mean 'weight' or 'weight_scale'?}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "wieght"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{has no attribute 'stride'; did you mean 'strides'?}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    stride = array<i64: 1, 1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{attribute 'input_layout' is 'NHCW', which is not known; did you mean 'NHWC' or 'NCHW'?}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    input_layout = "NHCW"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{attribute 'weight_layout' is 'OIHW', which is not known; did you mean 'HWCF' or 'FHWC' or 'FCHW'?}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    weight_layout = "OIHW"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{attribute 'strides' must be an array of 2 i64 integers, but got [1, 1]}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    strides = [1, 1]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{attribute 'padding' must be an array of 4 i64 integers, but got array<i64: 1, 1>}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    padding = array<i64: 1, 1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{attribute 'groups' must be an integer, but got true}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    groups = true
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

// === Shapes and geometry

func.func @f(%input: tensor<8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'input' and 'weight' must have four axes, but are tensor<8x8x4xi8> and tensor<6x3x3x4xi8>}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x?x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{the weight's shape and the input's channels must be static}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x?x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x?xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{the weight's shape and the input's channels must be static}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<1x8x8x?xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'strides' [0, 1] must be at least 1}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    strides = array<i64: 0, 1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'dilations' [1, -1] must be at least 1}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    dilations = array<i64: 1, -1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'padding' and 'output_padding' must not be negative}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    padding = array<i64: 0, 0, -1, 0>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x2xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'groups' = 1 needs C = groups * 2 (C is 4) and F = 6 divisible by it}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x2xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<5x3x3x2xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'groups' = 2 needs C = groups * 2 (C is 4) and F = 5 divisible by it}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    groups = 2
  }
      : (tensor<1x8x8x4xi8>, tensor<5x3x3x2xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'groups' = 0 needs C = groups * 4}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    groups = 0
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'output_padding' belongs to transposed convolutions}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    output_padding = array<i64: 1, 0>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'output_padding' [1, 0] must be smaller than the stride or the dilation}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    transposed = true, output_padding = array<i64: 1, 0>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{a kernel 3x3 with dilations [4, 1] is larger than the padded input: it needs 9 elements, but there are 8 + 0}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    dilations = array<i64: 4, 1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

// The padded input is one element too short for the kernel: the size formula alone would give an empty result.
func.func @f(%input: tensor<1x2x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x0x3x6xf32> {
  // expected-error@+1 {{a kernel 3x3 with dilations [1, 1] is larger than the padded input: it needs 3 elements, but there are 2 + 0}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    strides = array<i64: 2, 2>
  }
      : (tensor<1x2x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x0x3x6xf32>
  return %0 : tensor<1x0x3x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'padding' [6, 0, 6, 0] leaves a negative height of the result}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    transposed = true, padding = array<i64: 6, 0, 6, 0>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x7xf32> {
  // expected-error@+1 {{result has shape [1, 6, 6, 7], but the operands give [1, 6, 6, 6]}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x7xf32>
  return %0 : tensor<1x6x6x7xf32>
}

// -----

func.func @f(%input: tensor<1x4x8x8xi8>, %weight: tensor<5x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{result has shape [1, 6, 6, 6], but the operands give [1, 5, 6, 6]}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    input_layout = "NCHW"
  }
      : (tensor<1x4x8x8xi8>, tensor<5x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<3x3x4x3xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{packed weights must be in layout 'FHWC', packed along C}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    weight_dtype = "i4", weight_packing = "low_first", weight_layout = "HWCF"
  }
      : (tensor<1x8x8x4xi8>, tensor<3x3x4x3xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x3xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'weight' has 3 bytes along its last axis, but 4 i4 codes packed 'low_first' take 2}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    weight_dtype = "i4", weight_packing = "low_first"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x3xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

// === Scales and zero points

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %lhs_scale: tensor<1x1x1x4xf32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'input_scale' of a convolution must be per tensor, but has shape [1, 1, 1, 4]}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_scale) {
    operand_names = ["input", "weight", "input_scale"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<1x1x1x4xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %lhs_zero_point: tensor<4xi32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'input_zero_point' of a convolution must be per tensor, but has shape [4]}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_zero_point) {
    operand_names = ["input", "weight", "input_zero_point"],
    input_zero_mode = "int"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<4xi32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %rhs_scale: tensor<5xf32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'weight_scale' has 5 values, but the weight has 6 filters}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %rhs_scale) {
    operand_names = ["input", "weight", "weight_scale"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<5xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %rhs_scale: tensor<6x1x1x4xf32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'weight_scale' has shape [6, 1, 1, 4]; weights of a convolution are scaled per tensor or per filter}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %rhs_scale) {
    operand_names = ["input", "weight", "weight_scale"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<6x1x1x4xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %rhs_zero_point: tensor<6xf32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{attribute 'weight_zero_mode' is 'offset_float', which a convolution does not support; use 'int' or 'offset_int'}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %rhs_zero_point) {
    operand_names = ["input", "weight", "weight_zero_point"],
    weight_dtype = "u8", weight_zero_mode = "offset_float"
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<6xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %lhs_zero_point: tensor<i32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{operand 'input_zero_point' is given, but 'input_zero_mode' is 'none'; state 'int' or another mode}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %lhs_zero_point) {
    operand_names = ["input", "weight", "input_zero_point"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<i32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xf32>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'weight' has dtype 'codebook', which needs operand 'codebook' with 16 values}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    weight_dtype = "codebook"
  }
      : (tensor<1x8x8x4xf32>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

// A sum of 3 * 3 * 16384 products can overflow i32.
func.func @f(%input: tensor<1x8x8x16384xi8>, %weight: tensor<6x3x3x16384xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{the exact i32 sum over K = 147456 can reach 2415919104}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"]
  }
      : (tensor<1x8x8x16384xi8>, tensor<6x3x3x16384xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

// === Epilogue

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %bias: tensor<5xf32>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'bias' has shape [5], which does not broadcast to the result's [1, 6, 6, 6]}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %bias) {
    operand_names = ["input", "weight", "bias"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<5xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x4x8x8xi8>, %weight: tensor<5x3x3x4xi8>, %bias: tensor<7x1x1xf32>)
    -> tensor<1x5x6x6xf32> {
  // expected-error@+1 {{which does not broadcast to the result's}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %bias) {
    operand_names = ["input", "weight", "bias"],
    input_layout = "NCHW"
  }
      : (tensor<1x4x8x8xi8>, tensor<5x3x3x4xi8>, tensor<7x1x1xf32>) -> tensor<1x5x6x6xf32>
  return %0 : tensor<1x5x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<5x3x3x4xi8>) -> tensor<1x6x6x2xf32> {
  // expected-error@+1 {{activation 'swiglu' pairs columns, but N = 5 is odd}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    activation = "swiglu"
  }
      : (tensor<1x8x8x4xi8>, tensor<5x3x3x4xi8>) -> tensor<1x6x6x2xf32>
  return %0 : tensor<1x6x6x2xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>, %out_scale: tensor<f32>)
    -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{operand 'out_scale' requantises, but the result is f32; use an i8 result}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %out_scale) {
    operand_names = ["input", "weight", "out_scale"]
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<f32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32> {
  // expected-error@+1 {{'group_size' states groups along K; weights of a convolution are scaled per tensor or per filter}}
  %0 = "qmlir.conv2d_q"(%input, %weight) {
    operand_names = ["input", "weight"],
    group_size = 4
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// -----

func.func @f(%input: tensor<1x8x8x4xi8>, %weight: tensor<6x3x3x4xi8>) -> tensor<1x8x8x6xf32> {
  %zero = arith.constant dense<200> : tensor<i32>
  // expected-error@+1 {{'input_zero_point' is 200, but padding is filled with the code of 0, which i8 codes have for zero points in [-128, 127]; convolve without padding}}
  %0 = "qmlir.conv2d_q"(%input, %weight, %zero) {
    operand_names = ["input", "weight", "input_zero_point"],
    input_zero_mode = "int", padding = array<i64: 1, 1, 1, 1>
  }
      : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<i32>) -> tensor<1x8x8x6xf32>
  return %0 : tensor<1x8x8x6xf32>
}

// -----

func.func @both_names(%x: tensor<1x5x5x4xi8>, %w: tensor<6x3x3x4xi8>, %s: tensor<f32>, %t: tensor<f32>)
    -> tensor<1x3x3x6xf32> {
  // expected-error@+1 {{has operands 'input_scale' and 'lhs_scale', its old name; leave 'lhs_scale' out}}
  %0 = "qmlir.conv2d_q"(%x, %w, %s, %t) {operand_names = ["input", "weight", "input_scale", "lhs_scale"]}
    : (tensor<1x5x5x4xi8>, tensor<6x3x3x4xi8>, tensor<f32>, tensor<f32>) -> tensor<1x3x3x6xf32>
  return %0 : tensor<1x3x3x6xf32>
}
