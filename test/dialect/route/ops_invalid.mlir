// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-verify

func.func @f(%l: tensor<4x8xf32>) {
  // expected-error@+1 {{requires attribute 'topk'}}
  %0:2 = "qmlir.route"(%l) {} : (tensor<4x8xf32>) -> (tensor<4x2xi32>, tensor<4x2xf32>)
  return
}

// -----

func.func @f(%l: tensor<4x8xf32>) {
  // expected-error@+1 {{attribute 'scoring' is 'softmac', which is not known; did you mean 'softmax'?}}
  %0:2 = "qmlir.route"(%l) {topk = 2 : i64, scoring = "softmac"} : (tensor<4x8xf32>) -> (tensor<4x2xi32>, tensor<4x2xf32>)
  return
}

// -----

func.func @f(%l: tensor<4xf32>) {
  // expected-error@+1 {{'logits' has shape [4], but must be [T, E], one score per token and expert}}
  %0:2 = "qmlir.route"(%l) {topk = 2 : i64} : (tensor<4xf32>) -> (tensor<4x2xi32>, tensor<4x2xf32>)
  return
}

// -----

func.func @f(%l: tensor<4x8xf64>) {
  // expected-error@+1 {{'logits' is f64; use f32, f16 or bf16}}
  %0:2 = "qmlir.route"(%l) {topk = 2 : i64} : (tensor<4x8xf64>) -> (tensor<4x2xi32>, tensor<4x2xf32>)
  return
}

// -----

func.func @f(%l: tensor<4x?xf32>) {
  // expected-error@+1 {{the number of experts (axis 1 of 'logits') must be static}}
  %0:2 = "qmlir.route"(%l) {topk = 2 : i64} : (tensor<4x?xf32>) -> (tensor<4x2xi32>, tensor<4x2xf32>)
  return
}

// -----

func.func @f(%l: tensor<4x8xf32>) {
  // expected-error@+1 {{'topk' is 9, but must be from 1 to the number of experts, 8}}
  %0:2 = "qmlir.route"(%l) {topk = 9 : i64} : (tensor<4x8xf32>) -> (tensor<4x9xi32>, tensor<4x9xf32>)
  return
}

// -----

func.func @f(%l: tensor<4x8xf32>) {
  // expected-error@+1 {{result 'expert_ids' must be a tensor of i32, but is tensor<4x2xi64>}}
  %0:2 = "qmlir.route"(%l) {topk = 2 : i64} : (tensor<4x8xf32>) -> (tensor<4x2xi64>, tensor<4x2xf32>)
  return
}

// -----

func.func @f(%l: tensor<4x8xf32>) {
  // expected-error@+1 {{result 'routing_weights' has shape [4, 3], but the operands give [4, 2]}}
  %0:2 = "qmlir.route"(%l) {topk = 2 : i64} : (tensor<4x8xf32>) -> (tensor<4x2xi32>, tensor<4x3xf32>)
  return
}
