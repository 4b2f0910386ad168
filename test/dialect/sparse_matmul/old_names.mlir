// The weight's old attribute names `packing` and `zero_mode`, without the operand's prefix `rhs_`.
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | filecheck %s

// CHECK: operand_names = ["lhs", "values", "indices", "indptr"], rhs_dtype = "i4", rhs_packing = "low_first",
// CHECK-SAME: rhs_shape = array<i64: 4, 3>, rhs_zero_mode = "none"}
func.func @names(%x: tensor<2x4xi8>, %v: tensor<2xi8>, %i: tensor<3xi32>, %p: tensor<5xi32>) -> tensor<2x3xi32> {
  %0 = "qmlir.sparse_matmul"(%x, %v, %i, %p) {
    operand_names = ["lhs", "values", "indices", "indptr"],
    format = "csr", rhs_shape = array<i64: 4, 3>, rhs_dtype = "i4", packing = "low_first", zero_mode = "none"
  } : (tensor<2x4xi8>, tensor<2xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}
