// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

// === Structure

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{has 3 operands, and only the required ones need no names; name all, operand_names = [...], from lhs, rhs, lhs_scale?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs)
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<4x8xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'operandSegmentSizes' array<i32: 1, 1> does not match 2 operands; name those that are given, operand_names = [...], from lhs, rhs, lhs_scale?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operandSegmentSizes = array<i32: 1, 1>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'operand_names' has 3 names for 2 operands}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs", "rhs_global_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'operand_names' must be an array of strings, but is array<i64: 1, 1>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = array<i64: 1, 1>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'rhs' is missing}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "lhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs' is given 2 times}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "lhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<f32>, %rhs_scale: tensor<f32>)
    -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs_scale' is given 2 times}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale", "lhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>, tensor<f32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{expects 1 results, got 2}}
  %0:2 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> (tensor<4x16xf32>, tensor<i8>)
  return %0#0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{takes no regions and no successors}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) ({^bb0(%x: i8):}) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{has attributes in <{...}>, which hides them from an op that MLIR has not registered; write {...}}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) <{rhs_transposed = true}> {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Names and kinds of attributes

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{has no attribute 'actvation'; did you mean 'activation'?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    actvation = "relu"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{has no attribute 'groups'; did you mean 'group_size'?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    groups = 2
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rounding' is 'half_evn', which is not known; did you mean 'half_even' or 'half_away'?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rounding = "half_evn"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'activation' is 'hardswish', which is not known; known: none, relu, relu6, gelu}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "hardswish"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_packing' is 'xyz', which is not known; known: none, low_first, high_first, interleaved}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_packing = "xyz"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_zero_mode' is 'offset', which is not known; did you mean 'offset_int' or 'offset_float'?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_zero_mode = "offset"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'lhs_zero_mode' is 'rescale', which is not known}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    lhs_zero_mode = "rescale"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'bias_stage' is 'after', which is not known}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    bias_stage = "after"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'gate_layout' is 'half', which is not known; did you mean 'halves'?}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    gate_layout = "half"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'lhs_dtype' is 'int8', which is not known}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    lhs_dtype = "int8"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_dtype' is 'i3', which is not known; did you mean 'i8' or 'i4'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i3"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'out_dtype' is 'i16', which is not known}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    out_dtype = "i16"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'compute_dtype' is 'f64', which is not known}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    compute_dtype = "f64"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rounding' must be one of 'half_even', 'half_away', 'trunc', but got 0 : i32}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rounding = 0 : i32
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_transposed' must be a bool, but got 1 : i64}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_transposed = 1
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'alpha' must be a float, but got 2 : i64}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    alpha = 2
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'act_clamp' must be an array of 2 f64 floats, but got array<f64: 0.000000e+00>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "clamp", act_clamp = array<f64: 0.0>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'clamp' must be an array of 2 i64 integers, but got [0, 1]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    clamp = [0, 1]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Types

func.func @f(%lhs: tensor<4x8xi32>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs' must be a ranked tensor of i8 codes or floats, but is tensor<4x8xi32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi32>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi4>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'rhs' must be a ranked tensor of i8 codes or floats, but is tensor<8x16xi4>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi4>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<*xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs' must be a ranked tensor of i8 codes or floats, but is tensor<*xi8>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<*xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: vector<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs' must be a ranked tensor of i8 codes or floats, but is vector<4x8xi8>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (vector<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: f32) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs_scale' must be a ranked tensor of floats, but is f32}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, f32) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_zero_point: tensor<i16>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs_zero_point' must be a ranked tensor of i8 or i32 integers, or floats, but is tensor<i16>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_zero_point"],
    lhs_zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<i16>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'bias' must be a ranked tensor of i32 integers or floats, but is tensor<16xi8>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_zero_point: tensor<f32>) -> tensor<4x16xi8> {
  // expected-error@+1 {{operand 'out_zero_point' must be a ranked tensor of i8 or i32 integers, but is tensor<f32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_zero_point) {
    operand_names = ["lhs", "rhs", "out_zero_point"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi64> {
  // expected-error@+1 {{result 'result' must be a ranked tensor of i8, i32 or floats, but is tensor<4x16xi64>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi64>
  return %0 : tensor<4x16xi64>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'lhs_dtype' says 'f16', which is stored as f16, but 'lhs' is tensor<4x8xi8>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    lhs_dtype = "f16"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_dtype' says 'i4', which is stored as i8, but 'rhs' is tensor<8x16xf32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4"
  }
      : (tensor<4x8xi8>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xf64>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'lhs' is f64, which a product does not take; use f32, f16 or bf16}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xf64>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'out_dtype' says 'f16', but the result is tensor<4x16xf32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    out_dtype = "f16"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'compute_dtype' belongs to products with a plain float side; both sides of this one are quantised}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    compute_dtype = "f16"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Shapes

func.func @f(%lhs: tensor<8xi8>, %rhs: tensor<8x16xi8>) -> tensor<16xf32> {
  // expected-error@+1 {{'lhs' and 'rhs' must have at least two axes, but are tensor<8xi8> and tensor<8x16xi8>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<8xi8>, tensor<8x16xi8>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<9x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{K differs: 'lhs' [4, 8] has 8 along axis 1, 'rhs' [9, 16] has 9 along axis 0}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<9x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<8x4xi8>, %rhs: tensor<16x9xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{K differs: 'lhs' [8, 4] has 8 along axis 0, 'rhs' [16, 9] has 9 along axis 1}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    lhs_transposed = true, rhs_transposed = true
  }
      : (tensor<8x4xi8>, tensor<16x9xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<2x4x8xi8>, %rhs: tensor<3x8x16xi8>) -> tensor<2x4x16xf32> {
  // expected-error@+1 {{the batch axes of 'lhs' [2, 4, 8] and 'rhs' [3, 8, 16] do not broadcast}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<2x4x8xi8>, tensor<3x8x16xi8>) -> tensor<2x4x16xf32>
  return %0 : tensor<2x4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x15xf32> {
  // expected-error@+1 {{result has shape [4, 15], but the operands give [4, 16]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x15xf32>
  return %0 : tensor<4x15xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<1x4x16xf32> {
  // expected-error@+1 {{result has shape [1, 4, 16], but the operands give [4, 16]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<1x4x16xf32>
  return %0 : tensor<1x4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x9xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs' has 9 bytes along its last axis, but 16 i4 codes packed 'low_first' take 8}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4", rhs_packing = "low_first"
  }
      : (tensor<4x8xi8>, tensor<8x9xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs' has packing 'low_first', but i8 codes fill a byte; use packing 'none'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_packing = "low_first"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x2xi8>) -> tensor<4x4xf32> {
  // expected-error@+1 {{'rhs' has 2 bytes along its last axis, but packing 'interleaved' fills words of 4}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "i4", rhs_packing = "interleaved"
  }
      : (tensor<4x8xi8>, tensor<8x2xi8>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// === Scales

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<3x1xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'lhs_scale' has shape [3, 1], but axis 0 of 'lhs' [4, 8] has 4 elements, which 3 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<3x1xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<1x1x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [1, 1, 16], which has more axes than 'rhs' [8, 16]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<1x1x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// A number of groups that does not divide K.
func.func @f(%lhs: tensor<4x128xi8>, %rhs: tensor<128x16xi8>, %rhs_scale: tensor<3x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [3, 16], but axis 0 of 'rhs' [128, 16] has 128 elements, which 3 groups do not divide; group sizes that divide 128: 16, 32, 64, 128}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  }
      : (tensor<4x128xi8>, tensor<128x16xi8>, tensor<3x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<0x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [0, 16], but axis 0 of 'rhs' [8, 16] has 8 elements, which 0 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<0x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x0xi8>, %rhs: tensor<0x16xi8>, %rhs_scale: tensor<2x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [2, 16], but axis 0 of 'rhs' [0, 16] has 0 elements, which 2 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  }
      : (tensor<4x0xi8>, tensor<0x16xi8>, tensor<2x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<?x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<4x1xf32>) -> tensor<?x16xf32> {
  // expected-error@+1 {{'lhs_scale' has shape [4, 1]: axis 0 of 'lhs' [?, 8] and of its scale must both be static or both be dynamic}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale"]
  }
      : (tensor<?x8xi8>, tensor<8x16xi8>, tensor<4x1xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// -----

// The hint for a vector that would align with K.
func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_scale: tensor<4xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'lhs_scale' has shape [4], which would align with K; write [M, 1] for one value per token, or [1, G] for groups along K}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_scale) {
    operand_names = ["lhs", "rhs", "lhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<4xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<16x8xi8>, %rhs_scale: tensor<16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' has shape [16], which would align with K; write [N, 1] for one value per channel}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"],
    rhs_transposed = true
  }
      : (tensor<4x8xi8>, tensor<16x8xi8>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %lhs_global_scale: tensor<4xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'lhs_global_scale' is one value per tensor, but has shape [4]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_global_scale) {
    operand_names = ["lhs", "rhs", "lhs_global_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<4xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Zero points

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'lhs_zero_mode' is 'int', which needs operand 'lhs_zero_point'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    lhs_zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_zero_mode' is 'rescale', which needs operand 'rhs_zero_point'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_zero_mode = "rescale"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_zero_point: tensor<i32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'rhs_zero_point' is given, but 'rhs_zero_mode' is 'none'; state 'int' or another mode}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<i32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_zero_point: tensor<f32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'rhs_zero_point' must be integer in mode 'int', but is tensor<f32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_zero_point: tensor<i32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'rhs_zero_point' must be float in mode 'offset_float', but is tensor<i32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_dtype = "u8", rhs_zero_mode = "offset_float"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<i32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_zero_point: tensor<i32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_zero_mode' is 'offset_int', which reads unsigned codes, but they are i8}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_zero_mode = "offset_int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<i32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<1x16xf32>,
    %rhs_zero_point: tensor<1x8xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{attribute 'rhs_zero_mode' is 'packed_int', but 'rhs_packing' is 'none'; use 'int' for unpacked zero points}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"],
    rhs_dtype = "u4", rhs_zero_mode = "packed_int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<1x16xf32>, tensor<1x8xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>, %lhs_zero_point: tensor<i32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'lhs_zero_point' is given, but f32 values have no zero point}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_zero_point"],
    lhs_zero_mode = "int"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>, tensor<i32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_zero_point: tensor<3x16xi32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_zero_point' has shape [3, 16], but axis 0 of 'rhs' [8, 16] has 8 elements, which 3 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<3x16xi32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x8xi8>, %rhs_scale: tensor<2x16xf32>,
    %rhs_zero_point: tensor<2x5xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_zero_point' has 5 bytes along its last axis, but 16 u4 codes packed 'low_first' take 8}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"], group_size = 4,
    rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"
  }
      : (tensor<4x8xi8>, tensor<8x8xi8>, tensor<2x16xf32>, tensor<2x5xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x8xi8>, %rhs_zero_point: tensor<2x8xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_zero_point' is packed along its last axis, which a scale of the same shape must tell}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"
  }
      : (tensor<4x8xi8>, tensor<8x8xi8>, tensor<2x8xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x8xi8>, %rhs_scale: tensor<2x16xf32>,
    %rhs_zero_point: tensor<5x8xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_zero_point' has shape [5, 16], but axis 0 of 'rhs' [8, 16] has 8 elements, which 5 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"], group_size = 4,
    rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"
  }
      : (tensor<4x8xi8>, tensor<8x8xi8>, tensor<2x16xf32>, tensor<5x8xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Codebooks and sums

func.func @f(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs' has dtype 'codebook', which needs operand 'codebook' with 16 values}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    rhs_dtype = "codebook"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>, %codebook: tensor<8xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'codebook' must have shape [16], but has [8]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %codebook) {
    operand_names = ["lhs", "rhs", "codebook"],
    rhs_dtype = "codebook"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>, tensor<8xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>, %codebook: tensor<16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'codebook' is given, but 'rhs' has dtype 'nf4'; state 'codebook'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %codebook) {
    operand_names = ["lhs", "rhs", "codebook"],
    rhs_dtype = "nf4"
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xf32>, %codebook: tensor<16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'lhs' has dtype 'codebook', which is for 'rhs'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %codebook) {
    operand_names = ["lhs", "rhs", "codebook"],
    lhs_dtype = "codebook"
  }
      : (tensor<4x8xi8>, tensor<8x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Exactness of the sum

// A K whose worst case overflows i32: 2^17 * 128 * 128.
func.func @f(%lhs: tensor<4x131072xi8>, %rhs: tensor<131072x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{the exact i32 sum over K = 131072 can reach 2147483648, which is more than 2^31 - 1; with these codes and zero points it is exact up to 131071: use scales in groups along K of at most that size}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x131072xi8>, tensor<131072x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x262144xi8>, %rhs: tensor<262144x16xi8>, %rhs_scale: tensor<2x16xf32>)
    -> tensor<4x16xf32> {
  // expected-error@+1 {{the exact i32 sum over a group of 131072 can reach 2147483648}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  }
      : (tensor<4x262144xi8>, tensor<262144x16xi8>, tensor<2x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// With a zero point that is not constant, |code - zero| of i8 codes can reach 255 instead of 128.
func.func @f(%lhs: tensor<4x65794xi8>, %rhs: tensor<65794x16xi8>, %lhs_zero_point: tensor<i32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{the exact i32 sum over K = 65794 can reach 2147516160, which is more than 2^31 - 1; with these codes and zero points it is exact up to 65793}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %lhs_zero_point) {
    operand_names = ["lhs", "rhs", "lhs_zero_point"],
    lhs_zero_mode = "int"
  }
      : (tensor<4x65794xi8>, tensor<65794x16xi8>, tensor<i32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x?xi8>, %rhs: tensor<?x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{K is dynamic, so that the i32 sum cannot be shown not to overflow; make K static}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x?xi8>, tensor<?x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Bias

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'bias' is added to the i32 accumulator (bias_stage 'acc'), but is tensor<16xf32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"],
    bias_stage = "acc"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xf32>, %bias: tensor<16xi32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{bias_stage 'acc' needs an integer product with scales constant along K; use 'scaled'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"],
    bias_stage = "acc"
  }
      : (tensor<4x8xi8>, tensor<8x16xf32>, tensor<16xi32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<2x16xf32>, %bias: tensor<16xi32>)
    -> tensor<4x16xf32> {
  // expected-error@+1 {{bias_stage 'acc' needs an integer product with scales constant along K; use 'scaled'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "rhs_scale", "bias"], group_size = 4,
    bias_stage = "acc"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<2x16xf32>, tensor<16xi32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xi32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'bias' with bias_stage 'scaled' must be float, and the result must not be the raw i32 accumulator, but is tensor<16xi32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xi32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xf32>) -> tensor<4x16xi32> {
  // expected-error@+1 {{'bias' with bias_stage 'scaled' must be float, and the result must not be the raw i32 accumulator, but is tensor<16xf32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xf32>) -> tensor<4x16xi8> {
  // expected-error@+1 {{bias_stage 'out' adds after the cast, but the result is requantised; use 'scaled' or 'acc'}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"],
    bias_stage = "out"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xf32>) -> tensor<4x16xi32> {
  // expected-error@+1 {{'bias' with bias_stage 'out' is added in the result's type i32, but is tensor<16xf32>}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"],
    bias_stage = "out"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<15xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'bias' has shape [15], which does not broadcast to the result's [4, 16]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<15xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// After a gated activation there are half as many columns.
func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %bias: tensor<16xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'bias' has shape [16], which does not broadcast to the result's [4, 8]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %bias) {
    operand_names = ["lhs", "rhs", "bias"],
    activation = "swiglu", bias_stage = "out"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<16xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// === Alpha, beta and C

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %c: tensor<4x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'c' and attribute 'beta' go together}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %c) {
    operand_names = ["lhs", "rhs", "c"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<4x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'c' and attribute 'beta' go together}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    beta = 1.0 : f32
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %c: tensor<5x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'c' has shape [5, 16], which does not broadcast to the result's [4, 16]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %c) {
    operand_names = ["lhs", "rhs", "c"],
    beta = 1.0 : f32
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<5x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Activations

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{activation 'clamp' and attribute 'act_clamp' go together}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "clamp"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{activation 'clamp' and attribute 'act_clamp' go together}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    act_clamp = array<f64: 0.0, 6.0>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'act_clamp' [6.0, 0.0] is an empty range}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "clamp", act_clamp = array<f64: 6.0, 0.0>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x15xi8>) -> tensor<4x7xf32> {
  // expected-error@+1 {{activation 'swiglu' pairs columns, but N = 15 is odd}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "swiglu"
  }
      : (tensor<4x8xi8>, tensor<8x15xi8>) -> tensor<4x7xf32>
  return %0 : tensor<4x7xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{result has shape [4, 16], but the operands give [4, 8]}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "geglu"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %act_scale: tensor<3x1xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'act_scale' has shape [3, 1], but axis 0 of 'result' [4, 16] has 4 elements, which 3 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %act_scale) {
    operand_names = ["lhs", "rhs", "act_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<3x1xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// === Requantised and raw results

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_scale: tensor<f32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'out_scale' requantises, but the result is f32; use an i8 result}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_scale) {
    operand_names = ["lhs", "rhs", "out_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_multiplier: tensor<f32>) -> tensor<4x16xbf16> {
  // expected-error@+1 {{operand 'out_multiplier' requantises, but the result is bf16; use an i8 result}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_multiplier) {
    operand_names = ["lhs", "rhs", "out_multiplier"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x16xbf16>
  return %0 : tensor<4x16xbf16>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_zero_point: tensor<i32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{operand 'out_zero_point' requantises, but the result is f32; use an i8 result}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_zero_point) {
    operand_names = ["lhs", "rhs", "out_zero_point"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<i32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_scale: tensor<f32>, %out_multiplier: tensor<f32>)
    -> tensor<4x16xi8> {
  // expected-error@+1 {{'out_scale' and 'out_multiplier' cannot both be given: the result is multiplied by 1/out_scale or by out_multiplier}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_scale, %out_multiplier) {
    operand_names = ["lhs", "rhs", "out_scale", "out_multiplier"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>, tensor<f32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %out_scale: tensor<1x3xf32>) -> tensor<4x16xi8> {
  // expected-error@+1 {{'out_scale' has shape [1, 3], but axis 1 of 'result' [4, 16] has 16 elements, which 3 groups do not divide}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %out_scale) {
    operand_names = ["lhs", "rhs", "out_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<1x3xf32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'clamp' bounds requantised codes, but the result is f32; use activation 'clamp' for floats}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    clamp = array<i64: 0, 6>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi8> {
  // expected-error@+1 {{'clamp' [-1, 127] is not a range of codes within [0, 255] of u8}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    out_dtype = "u8", clamp = array<i64: -1, 127>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi8> {
  // expected-error@+1 {{'clamp' [5, 4] is not a range of codes within [-128, 127] of i8}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    clamp = array<i64: 5, 4>
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%lhs: tensor<4x8xf32>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi32> {
  // expected-error@+1 {{result i32 is the raw accumulator, but the operands are f32 x i8}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"]
  }
      : (tensor<4x8xf32>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_scale: tensor<f32>) -> tensor<4x16xi32> {
  // expected-error@+1 {{result i32 is the raw accumulator; it takes no rhs_scale}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_scale) {
    operand_names = ["lhs", "rhs", "rhs_scale"]
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<f32>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>) -> tensor<4x16xi32> {
  // expected-error@+1 {{result i32 is the raw accumulator; it takes no activation or alpha}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs) {
    operand_names = ["lhs", "rhs"],
    activation = "relu"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

func.func @f(%lhs: tensor<4x8xi8>, %rhs: tensor<8x16xi8>, %rhs_zero_point: tensor<2x16xi32>) -> tensor<4x16xi32> {
  // expected-error@+1 {{result i32 is the raw accumulator; it takes no groups along K and no float zero points}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %rhs_zero_point) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"], group_size = 4,
    rhs_zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<8x16xi8>, tensor<2x16xi32>) -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// -----

// The per-channel scales of a transposed weight have the shape [N, 1].
func.func @f(%lhs: tensor<4x64xi8>, %rhs: tensor<16x64xi8>, %s: tensor<1x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' [1, 16] makes groups of 4 along K of 'rhs' [16, 64]; did you mean [16, 1], one value per channel? For groups of 4 state group_size = 4}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %s) {
    operand_names = ["lhs", "rhs", "rhs_scale"],
    rhs_transposed = true
  } : (tensor<4x64xi8>, tensor<16x64xi8>, tensor<1x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// The size of the groups must be the stated `group_size`.
func.func @f(%lhs: tensor<4x64xi8>, %rhs: tensor<16x64xi8>, %s: tensor<16x16xf32>) -> tensor<4x16xf32> {
  // expected-error@+1 {{'rhs_scale' [16, 16] makes groups of 4 along K of 'rhs' [16, 64], but 'group_size' is 3}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %s) {
    operand_names = ["lhs", "rhs", "rhs_scale"],
    rhs_transposed = true, group_size = 3
  } : (tensor<4x64xi8>, tensor<16x64xi8>, tensor<16x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// The constant byte -56 is the zero point 200 of u8 codes: |code - zero| reaches 200. It was once read as -56.
func.func @f(%lhs: tensor<4x83887xi8>, %rhs: tensor<83887x2xi8>) -> tensor<4x2xi32> {
  %z = arith.constant dense<-56> : tensor<i8>
  // expected-error@+1 {{the exact i32 sum over K = 83887 can reach 2147507200, which is more than 2^31 - 1; with these codes and zero points it is exact up to 83886}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %z) {
    operand_names = ["lhs", "rhs", "rhs_zero_point"],
    rhs_dtype = "u8", rhs_zero_mode = "int"
  }
      : (tensor<4x83887xi8>, tensor<83887x2xi8>, tensor<i8>) -> tensor<4x2xi32>
  return %0 : tensor<4x2xi32>
}

// -----

// A constant byte of packed zero points holds two codes: here 0 and 15, not the value -16.
func.func @f(%lhs: tensor<4x1118482xi8>, %rhs: tensor<1118482x1xi8>, %s: tensor<1x2xf32>) -> tensor<4x2xf32> {
  %z = arith.constant dense<-16> : tensor<1x1xi8>
  // expected-error@+1 {{the exact i32 sum over K = 1118482 can reach 2147485440, which is more than 2^31 - 1; with these codes and zero points it is exact up to 1118481}}
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %s, %z) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"],
    rhs_dtype = "u4", rhs_packing = "low_first", rhs_zero_mode = "packed_int"
  }
      : (tensor<4x1118482xi8>, tensor<1118482x1xi8>, tensor<1x2xf32>, tensor<1x1xi8>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

func.func @both_names(%x: tensor<2x16xi8>, %w: tensor<16x4xi8>) -> tensor<2x8xf32> {
  // expected-error@+1 {{has attributes 'rhs_packing' and 'packing', its old name; leave 'packing' out}}
  %0 = "qmlir.scaled_matmul"(%x, %w) {rhs_dtype = "i4", rhs_packing = "low_first", packing = "low_first"}
    : (tensor<2x16xi8>, tensor<16x4xi8>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
