// Convolutions with the old names of operands and attributes, which are those of a product (`lhs`, `rhs`).
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify 2>%t | filecheck %s
// RUN: filecheck %s --check-prefix=WARNED < %t

// WARNED: 'packing' is deprecated: use 'weight_packing'

// CHECK-LABEL: func.func @names(
// CHECK: "qmlir.conv2d_q"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) {input_dtype = "u8", input_zero_mode = "int",
// CHECK-SAME: operand_names = ["input", "weight", "input_scale", "weight_scale", "input_zero_point", "weight_zero_point"],
// CHECK-SAME: weight_dtype = "u4", weight_packing = "low_first", weight_zero_mode = "int"}
func.func @names(%x: tensor<1x8x8x4xi8>, %w: tensor<6x3x3x2xi8>, %sx: tensor<f32>, %sw: tensor<6xf32>,
    %zx: tensor<i32>, %zw: tensor<6xi32>) -> tensor<1x6x6x6xf32> {
  %0 = "qmlir.conv2d_q"(%x, %w, %sx, %sw, %zx, %zw) {
    operand_names = ["input", "weight", "lhs_scale", "rhs_scale", "lhs_zero_point", "rhs_zero_point"],
    lhs_dtype = "u8", rhs_dtype = "u4", packing = "low_first", lhs_zero_mode = "int", zero_mode = "int"
  } : (tensor<1x8x8x4xi8>, tensor<6x3x3x2xi8>, tensor<f32>, tensor<6xf32>, tensor<i32>, tensor<6xi32>)
    -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// The weight sums, once an attribute, are removed: the lowering computes them.
// CHECK-LABEL: func.func @counted(
// CHECK: "qmlir.conv2d_q"(%arg0, %arg1, %arg2) {operand_names = ["input", "weight", "weight_scale"]} :
func.func @counted(%x: tensor<1x8x8x4xi8>, %w: tensor<6x3x3x4xi8>, %s: tensor<6xf32>) -> tensor<1x6x6x6xf32> {
  %0 = "qmlir.conv2d_q"(%x, %w, %s) {
    operandSegmentSizes = array<i32: 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    rhs_sum = dense<0> : tensor<6xi32>
  } : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<6xf32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}

// CHECK-LABEL: func.func @global_scales(
// CHECK-SAME: {{.*}}
// CHECK: operand_names = ["input", "weight", "input_global_scale", "weight_global_scale"]
func.func @global_scales(%x: tensor<1x8x8x4xi8>, %w: tensor<6x3x3x4xi8>, %a: tensor<f32>, %b: tensor<f32>)
    -> tensor<1x6x6x6xf32> {
  %0 = "qmlir.conv2d_q"(%x, %w, %a, %b) {
    operand_names = ["input", "weight", "lhs_global_scale", "rhs_global_scale"]
  } : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<f32>, tensor<f32>) -> tensor<1x6x6x6xf32>
  return %0 : tensor<1x6x6x6xf32>
}
