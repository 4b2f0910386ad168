// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// CHECK-LABEL: func.func @softmax(
// CHECK: "qmlir.route"(%{{[^,)]*}}) {topk = 2 : i64}
// CHECK-SAME: : (tensor<6x4xf32>) -> (tensor<6x2xi32>, tensor<6x2xf32>)
func.func @softmax(%logits: tensor<6x4xf32>) -> (tensor<6x2xi32>, tensor<6x2xf32>) {
  %0:2 = "qmlir.route"(%logits) {topk = 2 : i64} : (tensor<6x4xf32>) -> (tensor<6x2xi32>, tensor<6x2xf32>)
  return %0#0, %0#1 : tensor<6x2xi32>, tensor<6x2xf32>
}

// CHECK-LABEL: func.func @sigmoid(
// CHECK: "qmlir.route"
// CHECK-SAME: {renormalize = true, scoring = "sigmoid", topk = 8 : i64}
// CHECK-SAME: : (tensor<?x256xbf16>) -> (tensor<?x8xi32>, tensor<?x8xf32>)
func.func @sigmoid(%logits: tensor<?x256xbf16>) -> (tensor<?x8xi32>, tensor<?x8xf32>) {
  %0:2 = "qmlir.route"(%logits) {topk = 8 : i64, scoring = "sigmoid", renormalize = true}
      : (tensor<?x256xbf16>) -> (tensor<?x8xi32>, tensor<?x8xf32>)
  return %0#0, %0#1 : tensor<?x8xi32>, tensor<?x8xf32>
}
