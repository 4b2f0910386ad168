// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// Rows sorted by group, one bias per group.
// CHECK-LABEL: func.func @contiguous(
// CHECK: "qmlir.grouped_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "group_sizes", "lhs_scale", "rhs_scale", "bias"]}
// CHECK-SAME: : (tensor<?x64xi8>, tensor<4x64x32xi8>, tensor<4xi32>, tensor<?x1xf32>, tensor<4x1x32xf32>,
// CHECK-SAME: tensor<4x32xf32>) -> tensor<?x32xf32>
func.func @contiguous(%lhs: tensor<?x64xi8>, %rhs: tensor<4x64x32xi8>, %group_sizes: tensor<4xi32>,
    %lhs_scale: tensor<?x1xf32>, %rhs_scale: tensor<4x1x32xf32>, %bias: tensor<4x32xf32>) -> tensor<?x32xf32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %lhs_scale, %rhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "group_sizes", "lhs_scale", "rhs_scale", "bias"]
  }
      : (tensor<?x64xi8>, tensor<4x64x32xi8>, tensor<4xi32>, tensor<?x1xf32>, tensor<4x1x32xf32>, tensor<4x32xf32>)
          -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// Packed int4 weights [G, N, K] with scales in groups of 32 along K.
// CHECK-LABEL: func.func @transposed(
// CHECK: "qmlir.grouped_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "group_sizes", "lhs_scale", "rhs_scale"],
// CHECK-SAME: rhs_dtype = "i4", rhs_packing = "low_first", rhs_transposed = true}
// CHECK-SAME: : (tensor<6x64xi8>, tensor<4x16x32xi8>, tensor<4xi64>, tensor<f32>,
// CHECK-SAME: tensor<4x16x2xf32>) -> tensor<6x16xbf16>
func.func @transposed(%lhs: tensor<6x64xi8>, %rhs: tensor<4x16x32xi8>, %group_sizes: tensor<4xi64>,
    %lhs_scale: tensor<f32>, %rhs_scale: tensor<4x16x2xf32>) -> tensor<6x16xbf16> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "group_sizes", "lhs_scale", "rhs_scale"],
    rhs_transposed = true, rhs_dtype = "i4", rhs_packing = "low_first"
  }
      : (tensor<6x64xi8>, tensor<4x16x32xi8>, tensor<4xi64>, tensor<f32>, tensor<4x16x2xf32>) -> tensor<6x16xbf16>
  return %0 : tensor<6x16xbf16>
}

// Each token is multiplied by the weights of the experts that its ids select.
// CHECK-LABEL: func.func @routed(
// CHECK: "qmlir.grouped_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "expert_ids", "lhs_scale", "rhs_scale", "bias"],
// CHECK-SAME: skip_invalid = true}
// CHECK-SAME: : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<6x1xf32>, tensor<4x1x16xf32>,
// CHECK-SAME: tensor<4x16xf32>) -> tensor<6x2x16xf32>
func.func @routed(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %lhs_scale: tensor<6x1xf32>, %rhs_scale: tensor<4x1x16xf32>, %bias: tensor<4x16xf32>) -> tensor<6x2x16xf32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %lhs_scale, %rhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "expert_ids", "lhs_scale", "rhs_scale", "bias"],
    skip_invalid = true
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<6x1xf32>, tensor<4x1x16xf32>, tensor<4x16xf32>)
          -> tensor<6x2x16xf32>
  return %0 : tensor<6x2x16xf32>
}

// The weighted sum of the experts' gated results, with one input row per slot.
// CHECK-LABEL: func.func @weighted(
// CHECK: "qmlir.grouped_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {activation = "swiglu",
// CHECK-SAME: operand_names = ["lhs", "rhs", "expert_ids", "routing_weights", "lhs_scale", "rhs_scale"]}
// CHECK-SAME: : (tensor<6x2x8xi8>, tensor<4x8x32xi8>, tensor<6x2xi64>, tensor<6x2xf32>, tensor<f32>,
// CHECK-SAME: tensor<f32>) -> tensor<6x16xf16>
func.func @weighted(%lhs: tensor<6x2x8xi8>, %rhs: tensor<4x8x32xi8>, %expert_ids: tensor<6x2xi64>,
    %routing_weights: tensor<6x2xf32>, %lhs_scale: tensor<f32>, %rhs_scale: tensor<f32>) -> tensor<6x16xf16> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %routing_weights, %lhs_scale, %rhs_scale) {
    operand_names = ["lhs", "rhs", "expert_ids", "routing_weights", "lhs_scale", "rhs_scale"],
    activation = "swiglu"
  }
      : (tensor<6x2x8xi8>, tensor<4x8x32xi8>, tensor<6x2xi64>, tensor<6x2xf32>, tensor<f32>, tensor<f32>)
          -> tensor<6x16xf16>
  return %0 : tensor<6x16xf16>
}

// int8 to int8 with one output scale per slot.
// CHECK-LABEL: func.func @requantized(
// CHECK: "qmlir.grouped_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {operand_names = ["lhs", "rhs", "expert_ids", "lhs_scale", "rhs_scale", "out_scale"],
// CHECK-SAME: rounding = "half_away"}
// CHECK-SAME: : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<f32>, tensor<f32>,
// CHECK-SAME: tensor<6x2x1xf32>) -> tensor<6x2x16xi8>
func.func @requantized(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %lhs_scale: tensor<f32>, %rhs_scale: tensor<f32>, %out_scale: tensor<6x2x1xf32>) -> tensor<6x2x16xi8> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %lhs_scale, %rhs_scale, %out_scale) {
    operand_names = ["lhs", "rhs", "expert_ids", "lhs_scale", "rhs_scale", "out_scale"],
    rounding = "half_away"
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<f32>, tensor<f32>, tensor<6x2x1xf32>)
          -> tensor<6x2x16xi8>
  return %0 : tensor<6x2x16xi8>
}
