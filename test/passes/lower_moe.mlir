// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse | filecheck %s

// One sort, one gather of tokens, two batched products that stay in blocks, and one gather back to the tokens. 12 slots
// of 4 experts take at most 5 blocks of 8 rows.
// CHECK-LABEL: func.func @layer(
// CHECK: cf.assert %{{.*}}, "an id of expert_ids (argument 3) is outside [0, 4)"
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<5x8x8xi8>, tensor<5x8x16xi8>)
// CHECK: arith.muli
// CHECK-NOT: tensor<6x2x16
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<5x8x16xi8>, tensor<5x16x8xi8>)
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} outs(%{{.*}} : tensor<6x8xf32>)
// CHECK: tensor.extract %arg4[
// CHECK: arith.mulf
// CHECK: return %{{.*}} : tensor<6x8xf32>
func.func @layer(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>, %ids: tensor<6x2xi32>,
    %weights: tensor<6x2xf32>, %scale: tensor<f32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %ids, %weights, %scale) {
    operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "intermediate_scale"],
    activation = "relu", intermediate_dtype = "i8"
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<f32>)
      -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// With `skip_invalid`, ids are not checked; the routing weights multiply the scale of the tokens, one row per slot.
// CHECK-LABEL: func.func @weights_first(
// CHECK-NOT: cf.assert
// CHECK: linalg.generic {{.*}}ins(%arg5, %arg4 :
// CHECK: arith.mulf
func.func @weights_first(%input: tensor<6x8xi8>, %w1: tensor<4x8x16xi8>, %w2: tensor<4x16x8xi8>,
    %ids: tensor<6x2xi32>, %weights: tensor<6x2xf32>, %scale: tensor<f32>) -> tensor<6x8xf32> {
  %0 = "qmlir.moe"(%input, %w1, %w2, %ids, %weights, %scale) {
    operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_scale"],
    routing_stage = "input", skip_invalid = true
  }
      : (tensor<6x8xi8>, tensor<4x8x16xi8>, tensor<4x16x8xi8>, tensor<6x2xi32>, tensor<6x2xf32>, tensor<f32>)
      -> tensor<6x8xf32>
  return %0 : tensor<6x8xf32>
}

// Experts are ranked by counting; no id can be out of range.
// CHECK-LABEL: func.func @router(
// CHECK-NOT: cf.assert
// CHECK: arith.cmpf ogt
// CHECK: math.exp
// CHECK: return %{{.*}}, %{{.*}} : tensor<?x2xi32>, tensor<?x2xf32>
func.func @router(%logits: tensor<?x8xf32>) -> (tensor<?x2xi32>, tensor<?x2xf32>) {
  %0:2 = "qmlir.route"(%logits) {topk = 2 : i64} : (tensor<?x8xf32>) -> (tensor<?x2xi32>, tensor<?x2xf32>)
  return %0#0, %0#1 : tensor<?x2xi32>, tensor<?x2xf32>
}

// CHECK-LABEL: func.func @sort(
// CHECK: cf.assert %{{.*}}, "an id of expert_ids (argument 0) is outside [0, 4)"
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}} : tensor<20xi32>, tensor<5xi32>, tensor<i32>
func.func @sort(%ids: tensor<4x2xi32>) -> (tensor<20xi32>, tensor<5xi32>, tensor<i32>) {
  %0:3 = "qmlir.moe_align_block_size"(%ids) {experts = 4 : i64, block_size = 4 : i64}
      : (tensor<4x2xi32>) -> (tensor<20xi32>, tensor<5xi32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<20xi32>, tensor<5xi32>, tensor<i32>
}
