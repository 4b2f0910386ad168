// The weight's old attribute names `packing` and `zero_mode`, without the operand's prefix `rhs_`.
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | filecheck %s

// CHECK: operand_names = ["lhs", "rhs", "group_sizes"], rhs_dtype = "u4", rhs_packing = "low_first",
// CHECK-SAME: rhs_transposed = true, rhs_zero_mode = "offset_int"}
func.func @names(%x: tensor<6x8xi8>, %w: tensor<4x16x4xi8>, %g: tensor<4xi32>) -> tensor<6x16xf32> {
  %0 = "qmlir.grouped_matmul"(%x, %w, %g) {
    operand_names = ["lhs", "rhs", "group_sizes"],
    rhs_transposed = true, rhs_dtype = "u4", packing = "low_first", zero_mode = "offset_int"
  } : (tensor<6x8xi8>, tensor<4x16x4xi8>, tensor<4xi32>) -> tensor<6x16xf32>
  return %0 : tensor<6x16xf32>
}
