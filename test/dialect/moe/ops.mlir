// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// Codes without scales: the accumulators are the real values.
// CHECK-LABEL: func.func @plain(
// CHECK: "qmlir.moe"
// CHECK-SAME: tensor<6x8xf32>
func.func @plain(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights"]}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// A gated layer with scales, biases and an intermediate result quantised per token.
// CHECK-LABEL: func.func @gated(
// CHECK: "qmlir.moe"
// CHECK-SAME: activation = "swiglu"
func.func @gated(%input: tensor<6x8xi8>, %w1: tensor<4x8x32xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %input_scale: tensor<6x1xf32>, %w1_scale: tensor<4x1x32xf32>, %w1_bias: tensor<4x32xf32>, %w2_scale: tensor<4x1x8xf32>, %w2_bias: tensor<8xf32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %input_scale, %w1_scale, %w1_bias, %w2_scale, %w2_bias) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_scale", "w1_scale", "w1_bias", "w2_scale", "w2_bias"], activation = "swiglu", intermediate_dtype = "i8"}
      : (tensor<6x8xi8>, tensor<4x8x32xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<6x1xf32>, tensor<4x1x32xf32>, tensor<4x32xf32>, tensor<4x1x8xf32>, tensor<8xf32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// An intermediate result requantised with a given scale and zero point.
// CHECK-LABEL: func.func @requantised(
// CHECK: "qmlir.moe"
// CHECK-SAME: intermediate_dtype = "u8"
func.func @requantised(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %input_scale: tensor<f32>, %w1_scale: tensor<f32>, %intermediate_scale: tensor<f32>, %intermediate_zero_point: tensor<i32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %input_scale, %w1_scale, %intermediate_scale, %intermediate_zero_point) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_scale", "w1_scale", "intermediate_scale", "intermediate_zero_point"], activation = "relu", intermediate_dtype = "u8"}
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<i32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// 4-bit weights with scales in groups along K; an f16 input and intermediate result.
// CHECK-LABEL: func.func @packed(
// CHECK: "qmlir.moe"
// CHECK-SAME: weight_packing = "low_first"
func.func @packed(%input: tensor<?x8xf16>, %w1: tensor<4x16x4xi8>, %w2: tensor<4x8x8xi8>, %expert_ids: tensor<?x2xi64>, %routing_weights: tensor<?x2xf16>, %w1_scale: tensor<4x16x2xf32>, %w2_scale: tensor<4x8x4xf32>) -> tensor<?x8xf16> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %w1_scale, %w2_scale) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "w1_scale", "w2_scale"], weight_dtype = "i4", weight_packing = "low_first", weights_transposed = true, group_size = 4, intermediate_dtype = "f16", out_dtype = "f16"}
      : (tensor<?x8xf16>, tensor<4x16x4xi8>, tensor<4x8x8xi8>, tensor<?x2xi64>, tensor<?x2xf16>, tensor<4x16x2xf32>, tensor<4x8x4xf32>) -> tensor<?x8xf16>
  return %0 : tensor<?x8xf16>
}

// One input row per slot, and routing weights that multiply the input.
// CHECK-LABEL: func.func @per_slot(
// CHECK: "qmlir.moe"
// CHECK-SAME: routing_stage = "input"
func.func @per_slot(%input: tensor<6x2x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %expert_ids: tensor<6x2xi32>, %routing_weights: tensor<6x2xf32>, %input_scale: tensor<6x2x1xf32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %expert_ids, %routing_weights, %input_scale) {operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_scale"], routing_stage = "input", skip_invalid = true}
      : (tensor<6x2x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<6x2x1xf32>) -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}
