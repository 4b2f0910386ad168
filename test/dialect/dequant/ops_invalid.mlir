// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

// === Structure and attributes

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{has 3 operands, and only the required ones need no names; name all, operand_names = [...], from input, scale, zero_point?, codebook?}}
  %0 = "qmlir.dequant"(%input, %scale, %scale)
      : (tensor<4x8xi8>, tensor<f32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{has no attribute 'mode'; did you mean 'zero_mode'?}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"], mode = "int"}
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{attribute 'dtype' is 'int4', which is not known}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "int4"
  }
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi32>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'input' must be a ranked tensor of i8 codes or floats, but is tensor<4x8xi32>}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<i32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'scale' must be a ranked tensor of floats, but is tensor<i32>}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi8>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{result 'result' must be a ranked tensor of floats, but is tensor<4x8xi8>}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'input' is tensor<4x8xf32>, which is not quantised}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{says 'e4m3', which is stored as f8E4M3FN, but 'input' is tensor<4x8xi8>}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "e4m3"
  }
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// === Shapes

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<4x3xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'scale' has shape [4, 3], but axis 1 of 'input' [4, 8] has 8 elements, which 3 groups do not divide}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi8>, tensor<4x3xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x9xf32> {
  // expected-error@+1 {{result has shape [4, 9], but the operands give [4, 8]}}
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'input' has 8 bytes along its last axis, but 8 i4 codes packed 'low_first' take 4}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "i4", packing = "low_first"
  }
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'input' has packing 'low_first', but i8 codes fill a byte; use packing 'none'}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    packing = "low_first"
  }
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<i8>, %scale: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{'input' has packing 'low_first', but no axis to be packed along}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "i4", packing = "low_first"
  }
      : (tensor<i8>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// === Zero points and codebooks

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'zero_point' is given, but 'zero_mode' is 'none'; state 'int' or another mode}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {operand_names = ["input", "scale", "zero_point"]}
      : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{attribute 'zero_mode' is 'int', which needs operand 'zero_point'}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'zero_point' must be float in mode 'rescale', but is tensor<i32>}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "rescale"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'zero_point' must be integer in mode 'int', but is tensor<f32>}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{attribute 'zero_mode' is 'offset_int', which reads unsigned codes, but they are i4}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    dtype = "i4", zero_mode = "offset_int"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xf8E5M2>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'zero_point' is given, but e5m2 values have no zero point}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "int"
  }
      : (tensor<4x8xf8E5M2>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<4x5xi32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'zero_point' has shape [4, 5], but axis 1 of 'input' [4, 8] has 8 elements, which 5 groups do not divide}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<4x5xi32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x4xi8>, %scale: tensor<2x8xf32>, %zero_point: tensor<2x3xi8>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'zero_point' has 3 bytes along its last axis, but 8 u4 codes packed 'low_first' take 4}}
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    dtype = "u4", packing = "low_first", zero_mode = "packed_int"
  }
      : (tensor<4x4xi8>, tensor<2x8xf32>, tensor<2x3xi8>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'input' has dtype 'codebook', which needs operand 'codebook' with 16 values}}
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "codebook"
  }
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %codebook: tensor<15xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'codebook' must have shape [16], but has [15]}}
  %0 = "qmlir.dequant"(%input, %scale, %codebook) {
    operand_names = ["input", "scale", "codebook"],
    dtype = "codebook"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<15xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>, %codebook: tensor<16xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{operand 'codebook' is given, but 'input' has dtype 'i8'; state 'codebook'}}
  %0 = "qmlir.dequant"(%input, %scale, %codebook) {operand_names = ["input", "scale", "codebook"]}
      : (tensor<4x8xi8>, tensor<f32>, tensor<16xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
