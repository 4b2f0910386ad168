// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{'w1' and 'w2' must have three axes, experts first, but are tensor<8x16xi8> and tensor<4x16x8xi8>}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x12x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{'w1' [4, 8, 16] gives 16 columns, but 'w2' [4, 12, 8] takes 12 rows}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x12x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{'w1' [4, 8, 16] gives 16 columns, but 'w2' [4, 16, 8] takes 16 rows, a gate and a value each with 'swiglu'}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"], activation = "swiglu"}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<5x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{'w1' [5, 8, 16] holds 5 experts, but 'w2' [4, 16, 8] holds 4}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<5x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<12xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{'expert_ids' has shape [12], but must be [T, topk] with a static topk}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<12xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x3xf32>) {
  // expected-error@+1 {{'routing_weights' has shape [6, 3], but 'expert_ids' has [6, 2]}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x3xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{attribute 'weight_zero_mode' is 'int', which needs operand 'w1_zero_point' or 'w2_zero_point'}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"], weight_zero_mode = "int"}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %intermediate_scale: tensor<f32>) {
  // expected-error@+1 {{'intermediate_scale' requantises the intermediate, which is f32; state 'i8' or 'u8'}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %intermediate_scale) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "intermediate_scale"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<f32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{recipe 'amax' is symmetric, which u8 codes cannot be; use 'torchao', 'onnx' or 'fbgemm', or i8}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"], intermediate_dtype = "u8", recipe = "amax"}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %intermediate_scale: tensor<16xf32>) {
  // expected-error@+1 {{'intermediate_scale' is one value, because it is constant along the second product's K, but has shape [16]}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %intermediate_scale) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "intermediate_scale"], intermediate_dtype = "i8"}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<16xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %intermediate_zero_point: tensor<i32>) {
  // expected-error@+1 {{'intermediate_zero_point' requires 'intermediate_scale'; a dynamic quantisation computes its own zero point}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %intermediate_zero_point) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "intermediate_zero_point"], intermediate_dtype = "i8"}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<i32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x9xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{K differs: 'input' [6, 9] has 9, 'w1' [4, 8, 16] has 8 along axis 1}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x9xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %w1_scale: tensor<3x1x16xf32>) {
  // expected-error@+1 {{'w1_scale' has shape [3, 1, 16], but axis 0 of 'w1' [4, 8, 16] has 4 elements, which 3 groups do not divide}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %w1_scale) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "w1_scale"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<3x1x16xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %w2_bias: tensor<3x8xf32>) {
  // expected-error@+1 {{'w2_bias' has shape [3, 8]; write [N], or [4, N] for one row per group}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %w2_bias) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "w2_bias"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<3x8xf32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %input_zero_point: tensor<i32>) {
  // expected-error@+1 {{operand 'input_zero_point' is given, but 'input_zero_mode' is 'none'; state 'int' or another mode}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %input_zero_point) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_zero_point"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<i32>) -> tensor<6x8xf32>
  return
}

// -----

func.func @f(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) {
  // expected-error@+1 {{result has shape [6, 9], but the operands give [6, 8]}}
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x9xf32>
  return
}
