// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{operand 'scale' is missing}}
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "zero_point"]}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{has no attribute 'dtype'; did you mean 'out_dtype'?}}
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "scale"], dtype = "i8"}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{attribute 'out_dtype' is 'e2m1', which is not known}}
  %0 = "qmlir.quantize"(%input, %scale) {
    operand_names = ["input", "scale"],
    out_dtype = "e2m1"
  }
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{attribute 'rounding' is 'nearest', which is not known; known: half_even, half_away, trunc}}
  %0 = "qmlir.quantize"(%input, %scale) {
    operand_names = ["input", "scale"],
    rounding = "nearest"
  }
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{operand 'input' must be a ranked tensor of floats, but is tensor<4x8xi8>}}
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>, %zero_point: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{operand 'zero_point' must be a ranked tensor of i8 or i32 integers, but is tensor<f32>}}
  %0 = "qmlir.quantize"(%input, %scale, %zero_point) {operand_names = ["input", "scale", "zero_point"]}
      : (tensor<4x8xf32>, tensor<f32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi32> {
  // expected-error@+1 {{result 'result' must be a ranked tensor of i8 codes (or bytes that hold packed codes), but is tensor<4x8xi32>}}
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi32>
  return %0 : tensor<4x8xi32>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<3x1xf32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{'scale' has shape [3, 1], but axis 0 of 'input' [4, 8] has 4 elements, which 3 groups do not divide}}
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xf32>, tensor<3x1xf32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>, %zero_point: tensor<5xi32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{'zero_point' has shape [5], but axis 1 of 'input' [4, 8] has 8 elements, which 5 groups do not divide}}
  %0 = "qmlir.quantize"(%input, %scale, %zero_point) {operand_names = ["input", "scale", "zero_point"]}
      : (tensor<4x8xf32>, tensor<f32>, tensor<5xi32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{'clamp' [-9, 7] is not a range of codes within [-8, 7] of i4}}
  %0 = "qmlir.quantize"(%input, %scale) {
    operand_names = ["input", "scale"],
    out_dtype = "i4", clamp = array<i64: -9, 7>
  }
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{'clamp' [3, 2] is not a range of codes within [-128, 127] of i8}}
  %0 = "qmlir.quantize"(%input, %scale) {
    operand_names = ["input", "scale"],
    clamp = array<i64: 3, 2>
  }
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<8x4xi8> {
  // expected-error@+1 {{result has shape [8, 4], but the operands give [4, 8]}}
  %0 = "qmlir.quantize"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<8x4xi8>
  return %0 : tensor<8x4xi8>
}

// -----

// An i1 code is -1 or 1: there is no 0 to round to.
func.func @f(%x: tensor<4x8xf32>, %s: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{attribute 'out_dtype' is 'i1', which is not known; did you mean 'u1' or 'i8' or 'i4' or 'i2'?}}
  %0 = "qmlir.quantize"(%x, %s) {operand_names = ["input", "scale"], out_dtype = "i1"}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}
