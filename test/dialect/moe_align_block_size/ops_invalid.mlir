// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

func.func @f(%i: tensor<6xi32>) {
  // expected-error@+1 {{'expert_ids' has shape [6], but must be [T, topk] with a static topk}}
  %0:3 = "qmlir.moe_align_block_size"(%i) {experts = 4 : i64, block_size = 8 : i64} : (tensor<6xi32>) -> (tensor<40xi32>, tensor<5xi32>, tensor<i32>)
  return
}

// -----

func.func @f(%i: tensor<6x2xi32>) {
  // expected-error@+1 {{'block_size' is 0, but must be at least 1}}
  %0:3 = "qmlir.moe_align_block_size"(%i) {experts = 4 : i64, block_size = 0 : i64} : (tensor<6x2xi32>) -> (tensor<40xi32>, tensor<5xi32>, tensor<i32>)
  return
}

// -----

func.func @f(%i: tensor<6x2xi32>) {
  // expected-error@+1 {{result 'sorted_token_ids' has shape [48], but the operands give [40]}}
  %0:3 = "qmlir.moe_align_block_size"(%i) {experts = 4 : i64, block_size = 8 : i64} : (tensor<6x2xi32>) -> (tensor<48xi32>, tensor<5xi32>, tensor<i32>)
  return
}

// -----

func.func @f(%i: tensor<6x2xi32>) {
  // expected-error@+1 {{result 'block_expert_ids' holds i32 integers, but is tensor<5xi64>}}
  %0:3 = "qmlir.moe_align_block_size"(%i) {experts = 4 : i64, block_size = 8 : i64} : (tensor<6x2xi32>) -> (tensor<40xi32>, tensor<5xi64>, tensor<i32>)
  return
}
