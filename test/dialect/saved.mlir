// Programs that count their operands in `operandSegmentSizes` are still read, and are printed with operand names. Each
// entry counts one operand, in the order of the op's definition.
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | filecheck %s

// CHECK-NOT: operandSegmentSizes = array<i32: 1, 1, 0
// CHECK-LABEL: func.func @scaled_matmul(
// CHECK: "qmlir.scaled_matmul"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME: {operand_names = ["lhs", "rhs", "rhs_scale", "out_scale"], out_dtype = "i8"}
func.func @scaled_matmul(%x: tensor<4x8xi8>, %w: tensor<8x6xi8>, %s: tensor<1x6xf32>, %o: tensor<f32>)
    -> tensor<4x6xi8> {
  %0 = "qmlir.scaled_matmul"(%x, %w, %s, %o) {
    operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0>, out_dtype = "i8"
  } : (tensor<4x8xi8>, tensor<8x6xi8>, tensor<1x6xf32>, tensor<f32>) -> tensor<4x6xi8>
  return %0 : tensor<4x6xi8>
}

// The weight sums, an operand that qmlir-fold once added, are removed: the lowering computes them.
// CHECK-LABEL: func.func @sums(
// CHECK: "qmlir.scaled_matmul"(%arg0, %arg1, %arg2) {lhs_zero_mode = "int",
// CHECK-SAME: operand_names = ["lhs", "rhs", "lhs_zero_point"]} : (tensor<4x8xi8>, tensor<8x6xi8>, tensor<i32>)
func.func @sums(%x: tensor<4x8xi8>, %w: tensor<8x6xi8>, %z: tensor<i32>, %sums: tensor<6xi32>) -> tensor<4x6xi32> {
  %0 = "qmlir.scaled_matmul"(%x, %w, %z, %sums) {
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0>, lhs_zero_mode = "int"
  } : (tensor<4x8xi8>, tensor<8x6xi8>, tensor<i32>, tensor<6xi32>) -> tensor<4x6xi32>
  return %0 : tensor<4x6xi32>
}

// CHECK-LABEL: func.func @conv2d_q(
// CHECK: "qmlir.conv2d_q"(%arg0, %arg1, %arg2) {operand_names = ["input", "weight", "bias"]}
func.func @conv2d_q(%x: tensor<1x8x8x4xi8>, %w: tensor<6x3x3x4xi8>, %b: tensor<6xf32>) -> tensor<1x6x6x6xf32> {
  %0 = "qmlir.conv2d_q"(%x, %w, %b) {
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0>
  } : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<6xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// CHECK-LABEL: func.func @grouped_matmul(
// CHECK: "qmlir.grouped_matmul"(%arg0, %arg1, %arg2, %arg3)
// CHECK-SAME: {operand_names = ["lhs", "rhs", "group_sizes", "rhs_scale"]}
func.func @grouped_matmul(%x: tensor<6x8xi8>, %w: tensor<4x8x16xi8>, %g: tensor<4xi32>, %s: tensor<f32>)
    -> tensor<6x16xf32> {
  %0 = "qmlir.grouped_matmul"(%x, %w, %g, %s) {
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>
  } : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<f32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}

// CHECK-LABEL: func.func @sparse_matmul(
// CHECK: "qmlir.sparse_matmul"(%arg0, %arg1, %arg2, %arg3) {format = "csr",
// CHECK-SAME: operand_names = ["lhs", "values", "indices", "indptr"], rhs_shape = array<i64: 4, 3>}
func.func @sparse_matmul(%x: tensor<2x4xi8>, %v: tensor<3xi8>, %i: tensor<3xi32>, %p: tensor<5xi32>)
    -> tensor<2x3xi32> {
  %0 = "qmlir.sparse_matmul"(%x, %v, %i, %p) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>
  } : (tensor<2x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @moe(
// CHECK: "qmlir.moe"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {
// CHECK-SAME: operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "w2_bias"]}
func.func @moe(%x: tensor<6x8xf32>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %ids: tensor<6x2xi32>,
    %r: tensor<6x2xf32>, %b: tensor<4x8xf32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%x, %w1, %w2, %ids, %r, %b) {
    operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0>
  } : (tensor<6x8xf32>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<4x8xf32>)
    -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// CHECK-LABEL: func.func @quantize(
// CHECK: "qmlir.quantize"(%arg0, %arg1) {operand_names = ["input", "scale"]}
func.func @quantize(%x: tensor<4xf32>, %s: tensor<f32>) -> tensor<4xi8> {
  %0 = "qmlir.quantize"(%x, %s) {operandSegmentSizes = array<i32: 1, 1, 0>}
    : (tensor<4xf32>, tensor<f32>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}

// CHECK-LABEL: func.func @dequant(
// CHECK: "qmlir.dequant"(%arg0, %arg1, %arg2) {{.*}}operand_names = ["input", "scale", "codebook"]
func.func @dequant(%x: tensor<4xi8>, %s: tensor<f32>, %c: tensor<16xf32>) -> tensor<8xf32> {
  %0 = "qmlir.dequant"(%x, %s, %c) {
    operandSegmentSizes = array<i32: 1, 1, 0, 1>, dtype = "codebook", packing = "low_first"
  } : (tensor<4xi8>, tensor<f32>, tensor<16xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
