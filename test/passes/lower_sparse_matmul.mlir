// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-fold,qmlir-lower-to-linalg,canonicalize,cse | filecheck %s

// A constant weight with many entries becomes dense, [N, K], at compile time.
// CHECK-LABEL: func.func @constant_dense(
// CHECK: arith.constant dense<{{\[\[}}0, 0, 0, 0], [0, 0, 0, 9], [7, 0, 0, 0]]> : tensor<3x4xi8>
// CHECK-NOT: tensor.extract
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg0, %{{.*}} : tensor<?x4xi8>, tensor<3x4xi8>)
func.func @constant_dense(%lhs: tensor<?x4xi8>) -> tensor<?x3xi32> {
  %values = arith.constant dense<[7, 9]> : tensor<2xi8>
  %indices = arith.constant dense<[2, 1]> : tensor<2xi32>
  %indptr = arith.constant dense<[0, 1, 1, 1, 2]> : tensor<5xi32>
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<?x4xi8>, tensor<2xi8>, tensor<2xi32>, tensor<5xi32>) -> tensor<?x3xi32>
  return %0 : tensor<?x3xi32>
}

// Few entries: each reads the lhs by position, two per row with padding; the sum for the zero point is a constant.
// CHECK-LABEL: func.func @constant_rows(
// CHECK-DAG: arith.constant dense<{{\[\[}}7, 9], [5, 0]]> : tensor<2x2xi8>
// CHECK-DAG: arith.constant dense<{{\[\[}}4, 900], [31, 0]]> : tensor<2x2xi32>
// CHECK-DAG: arith.constant dense<[16, 5]> : tensor<2xi32>
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<2x2xi8>, tensor<2x2xi32>)
// CHECK: tensor.extract %{{.*}} : tensor<?x1024xi8>
// CHECK: arith.muli
// CHECK-NEXT: arith.addi %out
// CHECK-NEXT: linalg.yield
// CHECK-NOT: tensor<2x1024xi8>
func.func @constant_rows(%lhs: tensor<?x1024xi8>, %lhs_zero_point: tensor<i32>) -> tensor<?x2xi32> {
  %values = arith.constant dense<[7, 9, 5]> : tensor<3xi8>
  %indices = arith.constant dense<[[0, 0, 1], [4, 900, 31]]> : tensor<2x3xi32>
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %lhs_zero_point) {
    format = "coo", rhs_shape = array<i64: 2, 1024>, rhs_transposed = true, lhs_zero_mode = "int",
    operand_names = ["lhs", "values", "indices", "lhs_zero_point"]
  }
      : (tensor<?x1024xi8>, tensor<3xi8>, tensor<2x3xi32>, tensor<i32>) -> tensor<?x2xi32>
  return %0 : tensor<?x2xi32>
}

// Blocks: the columns of the lhs are gathered, and then multiplied by a batched contraction.
// CHECK-LABEL: func.func @constant_blocks(
// CHECK: linalg.generic {{.*}}ins(%{{.*}} : tensor<2x8xi32>)
// CHECK: tensor.extract %{{.*}} : tensor<5x64xi8>
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<2x5x8xi8>, tensor<2x8x8xi8>)
func.func @constant_blocks(%lhs: tensor<5x64xi8>) -> tensor<5x16xi32> {
  %values = arith.constant dense<3> : tensor<2x8x8xi8>
  %indices = arith.constant dense<[6, 1]> : tensor<2xi32>
  %indptr = arith.constant dense<[0, 1, 2]> : tensor<3xi32>
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "bsr", rhs_shape = array<i64: 16, 64>, block = array<i64: 8, 8>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<5x64xi8>, tensor<2x8x8xi8>, tensor<2xi32>, tensor<3xi32>) -> tensor<5x16xi32>
  return %0 : tensor<5x16xi32>
}

// A weight that is known at run time is checked, and then scattered into a dense weight.
// CHECK-LABEL: func.func @scattered(
// CHECK: cf.assert %{{.*}}, "'indptr' of the sparse weight must start at 0, not decrease, and end at 6"
// CHECK: cf.assert %{{.*}}, "'indptr' of the sparse weight must start at 0, not decrease, and end at 6"
// CHECK: cf.assert %{{.*}}, "an entry of 'indices' of the sparse weight is outside [0, 4) x [0, 3)"
// CHECK: cf.assert %{{.*}}, "the entries of 'indices' of the sparse weight must be sorted by row and column, none twice"
// CHECK: iree_linalg_ext.scatter
// CHECK: linalg.generic {{.*}}ins(%arg0, %{{.*}} : tensor<?x4xi8>, tensor<4x3xi8>)
func.func @scattered(%lhs: tensor<?x4xi8>, %values: tensor<6xi8>, %indices: tensor<6xi64>, %indptr: tensor<5xi64>)
    -> tensor<?x3xi32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 4, 3>,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<?x4xi8>, tensor<6xi8>, tensor<6xi64>, tensor<5xi64>) -> tensor<?x3xi32>
  return %0 : tensor<?x3xi32>
}

// A weight that is known at run time and too large to be dense: rows are padded to the longest row of the call.
// CHECK-LABEL: func.func @rows_at_run_time(
// CHECK-NOT: iree_linalg_ext.scatter
// CHECK: linalg.generic {{.*}}ins(%{{.*}}, %{{.*}} : tensor<1048576x?xi8>, tensor<1048576x?xi32>)
// CHECK: tensor.extract %{{.*}} : tensor<3x2048xi8>
func.func @rows_at_run_time(%lhs: tensor<3x2048xi8>, %values: tensor<6xi8>, %indices: tensor<6xi32>,
    %indptr: tensor<1048577xi32>) -> tensor<3x1048576xi32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices, %indptr) {
    format = "csr", rhs_shape = array<i64: 1048576, 2048>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices", "indptr"]
  }
      : (tensor<3x2048xi8>, tensor<6xi8>, tensor<6xi32>, tensor<1048577xi32>) -> tensor<3x1048576xi32>
  return %0 : tensor<3x1048576xi32>
}

// 2:4 metadata is decoded before the dense contraction.
// CHECK-LABEL: func.func @two_of_four(
// CHECK: cf.assert %{{.*}}, "a group of the 2:4 metadata of 'indices' does not name two positions in ascending order"
// CHECK: linalg.generic {{.*}}outs(%{{.*}} : tensor<16x16x4xi8>)
// CHECK: linalg.generic {{.*}}ins(%arg0, %{{.*}} : tensor<?x64xi8>, tensor<16x64xi8>)
func.func @two_of_four(%lhs: tensor<?x64xi8>, %values: tensor<16x32xi8>, %indices: tensor<16x8xi8>)
    -> tensor<?x16xi32> {
  %0 = "qmlir.sparse_matmul"(%lhs, %values, %indices) {
    format = "2:4", rhs_shape = array<i64: 16, 64>, rhs_transposed = true,
    operand_names = ["lhs", "values", "indices"]
  }
      : (tensor<?x64xi8>, tensor<16x32xi8>, tensor<16x8xi8>) -> tensor<?x16xi32>
  return %0 : tensor<?x16xi32>
}

// The error for a weight that is too large to be made dense says what would work.
// RUN: not qmlir-opt %S/Inputs/sparse_too_large.mlir --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg 2>&1 | filecheck %s --check-prefix=LARGE
// LARGE: 'qmlir.sparse_matmul' op the weight [1048576, 1048576] is too large to be made dense, and a weight [K, N] that is known at run time is scattered; give it as [N, K] with 'rhs_transposed'
