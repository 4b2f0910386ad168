// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

func.func @f(%input: tensor<4x8xf32>, %scale: tensor<f32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{expects 1 operands (input), but got 2}}
  %0:2 = "qmlir.dynamic_quantize"(%input, %scale)
      : (tensor<4x8xf32>, tensor<f32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> tensor<4x8xi8> {
  // expected-error@+1 {{expects 2 to 3 results, got 1}}
  %0 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xf32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{'operand_names' has 2 names for 1 operands}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {operand_names = ["input", "scale"]}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{has no attribute 'axis'}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {axis = 1}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{attribute 'granularity' is 'channel', which is not known; known: tensor, token, group}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "channel"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{attribute 'recipe' is 'torch', which is not known; did you mean 'torchao'?}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {recipe = "torch"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{attribute 'group_size' must be an integer, but got "4"}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "group", group_size = "4"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{attribute 'out_dtype' is 'i1', which is not known}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {out_dtype = "i1"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xi8>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{operand 'input' must be a ranked tensor of floats, but is tensor<4x8xi8>}}
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xi8>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

// === Granularity

func.func @f(%input: tensor<f32>) -> (tensor<i8>, tensor<f32>) {
  // expected-error@+1 {{'input' is a scalar; use granularity 'tensor'}}
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<f32>) -> (tensor<i8>, tensor<f32>)
  return %0#0, %0#1 : tensor<i8>, tensor<f32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{granularity 'group' and attribute 'group_size' go together}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "group"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{granularity 'group' and attribute 'group_size' go together}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {group_size = 4}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{'group_size' 3 does not divide the last axis of 'input' [4, 8]}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "group", group_size = 3}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{'group_size' 0 does not divide the last axis of 'input' [4, 8]}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "group", group_size = 0}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x?xf32>) -> (tensor<4x?xi8>, tensor<4x?xf32>) {
  // expected-error@+1 {{'group_size' 4 does not divide the last axis of 'input' [4, ?]}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "group", group_size = 4}
      : (tensor<4x?xf32>) -> (tensor<4x?xi8>, tensor<4x?xf32>)
  return %0#0, %0#1 : tensor<4x?xi8>, tensor<4x?xf32>
}

// -----

// === Recipes

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{recipe 'onnx' is asymmetric; state symmetric = false, or use 'torchao' or 'amax'}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {recipe = "onnx"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{recipe 'fbgemm' is asymmetric; state symmetric = false, or use 'torchao' or 'amax'}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {recipe = "fbgemm"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>) {
  // expected-error@+1 {{recipe 'amax' is symmetric; state symmetric = true, or use 'torchao', 'onnx' or 'fbgemm'}}
  %0:3 = "qmlir.dynamic_quantize"(%input) {recipe = "amax", symmetric = false}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{an asymmetric quantisation has three results (codes, scale, zero_point), a symmetric one two}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {symmetric = false}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>) {
  // expected-error@+1 {{an asymmetric quantisation has three results (codes, scale, zero_point), a symmetric one two}}
  %0:3 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>
}

// -----

// === Results

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf16>) {
  // expected-error@+1 {{result 'scale' must be a tensor of f32, but is tensor<4x1xf16>}}
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf16>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf16>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xf32>) {
  // expected-error@+1 {{result 'zero_point' must be a tensor of i32, but is tensor<4x1xf32>}}
  %0:3 = "qmlir.dynamic_quantize"(%input) {symmetric = false}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xf32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x9xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{result 'codes' has shape [4, 9], but the operands give [4, 8]}}
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xf32>) -> (tensor<4x9xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x9xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4xf32>) {
  // expected-error@+1 {{result 'scale' has shape [4], but the operands give [4, 1]}}
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<i32>) {
  // expected-error@+1 {{result 'zero_point' has shape [], but the operands give [4, 1]}}
  %0:3 = "qmlir.dynamic_quantize"(%input) {symmetric = false}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<i32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{attribute 'out_dtype' says 'e4m3', but result 'codes' is tensor<4x8xi8>}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {out_dtype = "e4m3"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x1xf32>) {
  // expected-error@+1 {{e4m3 codes are rounded half to even, but 'rounding' is 'trunc'}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {out_dtype = "e4m3", rounding = "trunc"}
      : (tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xf8E4M3FN>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x1xf32>, tensor<4x1xi32>) {
  // expected-error@+1 {{e4m3 codes have no zero point; state symmetric = true, or use integer codes}}
  %0:3 = "qmlir.dynamic_quantize"(%input) {out_dtype = "e4m3", symmetric = false}
      : (tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x1xf32>, tensor<4x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xf8E4M3FN>, tensor<4x1xf32>, tensor<4x1xi32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{'clamp' [-129, 127] is not a range of codes within [-128, 127] of i8}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {clamp = array<i64: -129, 127>}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x1xf32>) {
  // expected-error@+1 {{'clamp' bounds integer codes, but the codes are e4m3}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {out_dtype = "e4m3", clamp = array<i64: -127, 127>}
      : (tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xf8E4M3FN>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{'eps' is the smallest scale of recipe 'torchao', but 'recipe' is 'amax'}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {recipe = "amax", eps = 1.0e-3 : f32}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// -----

func.func @f(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  // expected-error@+1 {{'eps' is -1.0, but must be finite and not negative}}
  %0:2 = "qmlir.dynamic_quantize"(%input) {eps = -1.0 : f32}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}
