// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse,qmlir-fuse-rows | filecheck %s

// The largest magnitude, the scale and the codes of each row are one dispatch; the reshape of the scale stays outside.
// CHECK-LABEL: func.func @symmetric(
// CHECK: %[[R:.*]]:2 = flow.dispatch.region -> (tensor<?xf32>{%{{.*}}}, tensor<?x64xi8>{%{{.*}}})
// CHECK: arith.maxsi
// CHECK: arith.divf
// CHECK: math.roundeven
// CHECK: flow.return
// CHECK: tensor.expand_shape %[[R]]#0
func.func @symmetric(%input: tensor<?x64xf32>) -> (tensor<?x64xi8>, tensor<?x1xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input) : (tensor<?x64xf32>) -> (tensor<?x64xi8>, tensor<?x1xf32>)
  return %0#0, %0#1 : tensor<?x64xi8>, tensor<?x1xf32>
}

// Both ends of the range are found in one pass.
// CHECK-LABEL: func.func @asymmetric(
// CHECK: flow.dispatch.region
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: arith.maxsi
// CHECK: arith.maxsi
// CHECK: linalg.yield %{{.*}}, %{{.*}} : i32, i32
// CHECK-NOT: "reduction"
// CHECK: flow.return
func.func @asymmetric(%input: tensor<8x64xf32>) -> (tensor<8x64xi8>, tensor<8x1xf32>, tensor<8x1xi32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {symmetric = false}
      : (tensor<8x64xf32>) -> (tensor<8x64xi8>, tensor<8x1xf32>, tensor<8x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<8x64xi8>, tensor<8x1xf32>, tensor<8x1xi32>
}

// Two quantisations are two dispatches; an op that is not a dynamic quantisation is unchanged.
// CHECK-LABEL: func.func @two(
// CHECK-COUNT-2: flow.dispatch.region
// CHECK-NOT: flow.dispatch.region
// CHECK: return
func.func @two(%a: tensor<8x64xf32>, %b: tensor<8x32xf32>) -> (tensor<8x64xi8>, tensor<8x32xi8>, tensor<8x64xi8>) {
  %s = arith.constant dense<0.5> : tensor<f32>
  %0:2 = "qmlir.dynamic_quantize"(%a) : (tensor<8x64xf32>) -> (tensor<8x64xi8>, tensor<8x1xf32>)
  %1:2 = "qmlir.dynamic_quantize"(%b) : (tensor<8x32xf32>) -> (tensor<8x32xi8>, tensor<8x1xf32>)
  %2 = "qmlir.quantize"(%a, %s) {operand_names = ["input", "scale"]}
      : (tensor<8x64xf32>, tensor<f32>) -> tensor<8x64xi8>
  return %0#0, %1#0, %2 : tensor<8x64xi8>, tensor<8x32xi8>, tensor<8x64xi8>
}
