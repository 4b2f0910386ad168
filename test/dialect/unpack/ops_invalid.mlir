// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

func.func @f(%input: tensor<4x8xi8>) -> tensor<4x16xi8> {
  // expected-error@+1 {{requires attribute 'dtype'}}
  %0 = "qmlir.unpack"(%input)
      : (tensor<4x8xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x16xi8> {
  // expected-error@+1 {{expects 1 operands (input), but got 2}}
  %0 = "qmlir.unpack"(%input, %scale) {dtype = "i4"}
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>) {
  // expected-error@+1 {{expects 1 results, got 0}}
  "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<4x8xi8>) -> ()
  return
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> tensor<4x16xi8> {
  // expected-error@+1 {{has no attribute 'bits'; known: dtype, packing}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4", bits = 4}
      : (tensor<4x8xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> tensor<4x16xi8> {
  // expected-error@+1 {{attribute 'dtype' is 'i8', which is not known; did you mean 'i4' or 'i2' or 'i1'?}}
  %0 = "qmlir.unpack"(%input) {dtype = "i8"}
      : (tensor<4x8xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> tensor<4x16xi8> {
  // expected-error@+1 {{attribute 'packing' is 'none', which is not known; known: low_first, high_first, interleaved}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4", packing = "none"}
      : (tensor<4x8xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%input: tensor<4x8xi32>) -> tensor<4x16xi8> {
  // expected-error@+1 {{operand 'input' must be a ranked tensor of i8 codes (or bytes that hold packed codes), but is tensor<4x8xi32>}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<4x8xi32>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// -----

func.func @f(%input: tensor<i8>) -> tensor<i8> {
  // expected-error@+1 {{'input' and the result must have at least one axis}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<i8>) -> tensor<i8>
  return %0 : tensor<i8>
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> tensor<4x18xi8> {
  // expected-error@+1 {{'input' has 8 bytes along its last axis, but 18 i4 codes packed 'low_first' take 9}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<4x8xi8>) -> tensor<4x18xi8>
  return %0 : tensor<4x18xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> tensor<4x6xi8> {
  // expected-error@+1 {{'input' has 8 bytes along its last axis, but 6 i4 codes packed 'interleaved' take 4}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4", packing = "interleaved"}
      : (tensor<4x8xi8>) -> tensor<4x6xi8>
  return %0 : tensor<4x6xi8>
}

// -----

func.func @f(%input: tensor<4x2xi8>) -> tensor<4x?xi8> {
  // expected-error@+1 {{'input' has 2 bytes along its last axis, but packing 'interleaved' fills words of 4}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4", packing = "interleaved"}
      : (tensor<4x2xi8>) -> tensor<4x?xi8>
  return %0 : tensor<4x?xi8>
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> tensor<3x16xi8> {
  // expected-error@+1 {{result has shape [3, 16], but the operands give [4, 16]}}
  %0 = "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<4x8xi8>) -> tensor<3x16xi8>
  return %0 : tensor<3x16xi8>
}
