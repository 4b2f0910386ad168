// The weight's old attribute names `packing` and `zero_mode`, without the operand's prefix `rhs_`.
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | filecheck %s

// CHECK: operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"], rhs_dtype = "u4", rhs_packing = "low_first",
// CHECK-SAME: rhs_zero_mode = "int"}
func.func @names(%x: tensor<2x16xf32>, %w: tensor<16x4xi8>, %s: tensor<1x8xf32>, %z: tensor<1x8xi32>)
    -> tensor<2x8xf32> {
  %0 = "qmlir.scaled_matmul"(%x, %w, %s, %z) {
    operand_names = ["lhs", "rhs", "rhs_scale", "rhs_zero_point"],
    rhs_dtype = "u4", packing = "low_first", zero_mode = "int"
  } : (tensor<2x16xf32>, tensor<16x4xi8>, tensor<1x8xf32>, tensor<1x8xi32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// Ops on a single tensor still use the names `packing` and `zero_mode`.
// CHECK-LABEL: func.func @dequant(
// CHECK: "qmlir.dequant"(%arg0, %arg1, %arg2) {dtype = "u4",
// CHECK-SAME: operand_names = ["input", "scale", "zero_point"], packing = "low_first", zero_mode = "int"}
func.func @dequant(%x: tensor<2x4xi8>, %s: tensor<2x8xf32>, %z: tensor<2x8xi32>) -> tensor<2x8xf32> {
  %0 = "qmlir.dequant"(%x, %s, %z) {
    operand_names = ["input", "scale", "zero_point"], dtype = "u4", packing = "low_first", zero_mode = "int"
  } : (tensor<2x4xi8>, tensor<2x8xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
