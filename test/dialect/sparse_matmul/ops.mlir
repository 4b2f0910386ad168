// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// Constant structure: one row per index of K, some of them empty; one scale per channel.
// CHECK-LABEL: func.func @csr(
// CHECK: "qmlir.sparse_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {format = "csr", operand_names = ["lhs", "values", "indices", "indptr", "lhs_scale", "rhs_scale"], rhs_shape = array<i64: 4, 3>}
// CHECK-SAME: : (tensor<?x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>, tensor<?x1xf32>,
// CHECK-SAME: tensor<1x3xf32>) -> tensor<?x3xf32>
func.func @csr(%lhs: tensor<?x4xi8>, %values: tensor<3xi8>, %lhs_scale: tensor<?x1xf32>,
    %rhs_scale: tensor<1x3xf32>) -> tensor<?x3xf32> {
  %indices = arith.constant dense<[0, 2, 1]> : tensor<3xi32>
  %indptr = arith.constant dense<[0, 2, 2, 3, 3]> : tensor<5xi32>
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr, %lhs_scale, %rhs_scale) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr", "lhs_scale", "rhs_scale"]
  }
      : (tensor<?x4xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>, tensor<?x1xf32>, tensor<1x3xf32>)
          -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}

// Entries of a weight [N, K] that are known only at run time; the result is the raw accumulator.
// CHECK-LABEL: func.func @coo(
// CHECK: "qmlir.sparse_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {format = "coo", operand_names = ["lhs", "values", "indices"], rhs_shape = array<i64: 7, 4>, rhs_transposed = true}
// CHECK-SAME: : (tensor<2x5x4xi8>, tensor<6xi8>, tensor<2x6xi64>) -> tensor<2x5x7xi32>
func.func @coo(%lhs: tensor<2x5x4xi8>, %values: tensor<6xi8>, %indices: tensor<2x6xi64>) -> tensor<2x5x7xi32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "coo", rhs_shape = array<i64: 7, 4>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<2x5x4xi8>, tensor<6xi8>, tensor<2x6xi64>) -> tensor<2x5x7xi32>
  return %0 : tensor<2x5x7xi32>
}

// Blocks of packed int4 codes.
// CHECK-LABEL: func.func @bsr(
// CHECK: "qmlir.sparse_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {block = array<i64: 2, 4>, format = "bsr", operand_names = ["lhs", "values", "indices", "indptr", "rhs_scale"], rhs_dtype = "i4", rhs_packing = "low_first", rhs_shape = array<i64: 6, 8>,
// CHECK-SAME: rhs_transposed = true}
// CHECK-SAME: : (tensor<?x8xi8>, tensor<2x2x2xi8>, tensor<2xi32>, tensor<4xi32>, tensor<f32>) -> tensor<?x6xf16>
func.func @bsr(%lhs: tensor<?x8xi8>, %values: tensor<2x2x2xi8>, %indices: tensor<2xi32>, %indptr: tensor<4xi32>,
    %rhs_scale: tensor<f32>) -> tensor<?x6xf16> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr, %rhs_scale) {
    format = "bsr", rhs_shape = array<i64: 6, 8>, block = array<i64: 2, 4>, rhs_transposed = true,
    rhs_dtype = "i4", rhs_packing = "low_first",
    operand_names = ["lhs", "values", "indices", "indptr", "rhs_scale"]
  }
      : (tensor<?x8xi8>, tensor<2x2x2xi8>, tensor<2xi32>, tensor<4xi32>, tensor<f32>) -> tensor<?x6xf16>
  return %0 : tensor<?x6xf16>
}

// 2:4 sparsity with scales in groups along K, a bias and a requantised result.
// CHECK-LABEL: func.func @two_of_four(
// CHECK: "qmlir.sparse_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}},
// CHECK-SAME: %{{[^,)]*}})
// CHECK-SAME: {activation = "relu", format = "2:4", operand_names = ["lhs", "values", "indices", "lhs_scale", "rhs_scale", "bias", "out_scale"], rhs_shape = array<i64: 16, 64>, rhs_transposed = true}
// CHECK-SAME: : (tensor<?x64xi8>, tensor<16x32xi8>, tensor<16x8xi8>, tensor<f32>, tensor<16x2xf32>, tensor<16xf32>,
// CHECK-SAME: tensor<f32>) -> tensor<?x16xi8>
func.func @two_of_four(%lhs: tensor<?x64xi8>, %values: tensor<16x32xi8>, %indices: tensor<16x8xi8>,
    %lhs_scale: tensor<f32>, %rhs_scale: tensor<16x2xf32>, %bias: tensor<16xf32>, %out_scale: tensor<f32>)
    -> tensor<?x16xi8> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %lhs_scale, %rhs_scale, %bias, %out_scale) {
    format = "2:4", rhs_shape = array<i64: 16, 64>, rhs_transposed = true, activation = "relu",
    operand_names = ["lhs", "values", "indices", "lhs_scale", "rhs_scale", "bias", "out_scale"]
  }
      : (tensor<?x64xi8>, tensor<16x32xi8>, tensor<16x8xi8>, tensor<f32>, tensor<16x2xf32>, tensor<16xf32>, tensor<f32>)
          -> tensor<?x16xi8>
  return %0 : tensor<?x16xi8>
}

// A float weight without stored entries.
// CHECK-LABEL: func.func @empty(
// CHECK: "qmlir.sparse_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {format = "csr", operand_names = ["lhs", "values", "indices", "indptr"], rhs_shape = array<i64: 4, 3>}
// CHECK-SAME: : (tensor<3x4xf32>, tensor<0xf32>, tensor<0xi32>, tensor<5xi32>) -> tensor<3x3xf32>
func.func @empty(%lhs: tensor<3x4xf32>, %values: tensor<0xf32>, %indices: tensor<0xi32>,
    %indptr: tensor<5xi32>) -> tensor<3x3xf32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<3x4xf32>, tensor<0xf32>, tensor<0xi32>, tensor<5xi32>) -> tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}

// K is too large for a dense i32 sum, but no sum has more than three terms.
// CHECK-LABEL: func.func @few_terms(
// CHECK: "qmlir.sparse_matmul"(%{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}}, %{{[^,)]*}})
// CHECK-SAME: {format = "csr", operand_names = ["lhs", "values", "indices", "indptr"], rhs_shape = array<i64: 4, 1000000>, rhs_transposed = true}
// CHECK-SAME: : (tensor<2x1000000xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x4xi32>
func.func @few_terms(%lhs: tensor<2x1000000xi8>, %values: tensor<3xi8>, %indices: tensor<3xi32>,
    %indptr: tensor<5xi32>) -> tensor<2x4xi32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 1000000>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<2x1000000xi8>, tensor<3xi8>, tensor<3xi32>, tensor<5xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
