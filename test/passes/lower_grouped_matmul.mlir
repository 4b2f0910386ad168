// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse | filecheck %s

// Rows are gathered into blocks of one group each, multiplied as a batch, and gathered back to their places.

// The group sizes are checked at run time; 24 rows in 4 groups take at most 6 blocks of 8 rows.
// CHECK-LABEL: func.func @contiguous(
// CHECK: cf.assert %{{.*}}, "group_sizes must be non-negative and add up to the number of rows of lhs"
// CHECK-DAG: tensor.extract %arg0
// CHECK-DAG: tensor.extract %arg1
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<6x8x8xi8>, tensor<6x8x16xi8>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK-NEXT: arith.extsi %{{.*}} : i8 to i32
// CHECK-NEXT: arith.muli
// CHECK-NEXT: arith.addi %out
// CHECK-NEXT: linalg.yield
// CHECK: tensor.extract
// CHECK: return %{{.*}} : tensor<24x16xi32>
func.func @contiguous(%lhs: tensor<24x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>)
    -> tensor<24x16xi32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<24x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>) -> tensor<24x16xi32>
  return %0 : tensor<24x16xi32>
}

// A dynamic number of rows: blocks of 32 rows.
// CHECK-LABEL: func.func @contiguous_dynamic(
// CHECK: cf.assert
// CHECK: linalg.generic {{.*}}tensor<?x32x8xi8>, tensor<?x8x16xi8>)
func.func @contiguous_dynamic(%lhs: tensor<?x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi64>)
    -> tensor<?x16xi32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes) {
    operand_names = ["lhs", "rhs", "group_sizes"]
  }
      : (tensor<?x8xi8>, tensor<4x8x16xi8>, tensor<4xi64>) -> tensor<?x16xi32>
  return %0 : tensor<?x16xi32>
}

// The bias and the scales of each group are gathered with its weights.
// CHECK-LABEL: func.func @bias(
// CHECK-DAG: tensor.extract %arg3
// CHECK-DAG: tensor.extract %arg4
func.func @bias(%lhs: tensor<24x8xi8>, %rhs: tensor<4x8x16xi8>, %group_sizes: tensor<4xi32>,
    %rhs_scale: tensor<4x1x16xf32>, %bias: tensor<4x16xf32>) -> tensor<24x16xf32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %group_sizes, %rhs_scale, %bias) {
    operand_names = ["lhs", "rhs", "group_sizes", "rhs_scale", "bias"]
  }
      : (tensor<24x8xi8>, tensor<4x8x16xi8>, tensor<4xi32>, tensor<4x1x16xf32>, tensor<4x16xf32>) -> tensor<24x16xf32>
  return %0 : tensor<24x16xf32>
}

// Ids are checked at run time; tokens are repeated topk times.
// CHECK-LABEL: func.func @routed(
// CHECK: cf.assert %{{.*}}, "an id of expert_ids (argument 2) is outside [0, 4)"
// CHECK: arith.muli
// CHECK: tensor.expand_shape %{{.*}} output_shape [6, 2, 16]
func.func @routed(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>) -> tensor<6x2x16xi32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids) {
    operand_names = ["lhs", "rhs", "expert_ids"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>) -> tensor<6x2x16xi32>
  return %0 : tensor<6x2x16xi32>
}

// With `skip_invalid`, rows with invalid ids are skipped, and ids are not checked.
// CHECK-LABEL: func.func @routed_skip(
// CHECK-NOT: cf.assert
// CHECK: return
func.func @routed_skip(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>)
    -> tensor<6x2x16xi32> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids) {
    operand_names = ["lhs", "rhs", "expert_ids"],
    skip_invalid = true
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>) -> tensor<6x2x16xi32>
  return %0 : tensor<6x2x16xi32>
}

// The weighted sum over the slots of a token is computed in f32, in ascending order, and then cast.
// CHECK-LABEL: func.func @weighted(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} outs(%{{.*}} : tensor<6x16xf32>)
// CHECK: tensor.extract %arg3[
// CHECK: arith.mulf
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: tensor.extract %arg3[
// CHECK: arith.mulf
// CHECK: arith.addf %[[SUM]]
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @weighted(%lhs: tensor<6x8xi8>, %rhs: tensor<4x8x16xi8>, %expert_ids: tensor<6x2xi32>,
    %routing_weights: tensor<6x2xf32>) -> tensor<6x16xf16> {
  %0 = "qmlir.grouped_matmul"(%lhs, %rhs, %expert_ids, %routing_weights) {
    operand_names = ["lhs", "rhs", "expert_ids", "routing_weights"]
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<6x2xi32>, tensor<6x2xf32>) -> tensor<6x16xf16>
  return %0 : tensor<6x16xf16>
}
