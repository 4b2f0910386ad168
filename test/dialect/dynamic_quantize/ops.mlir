// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// The defaults: a scale for each row.
// CHECK-LABEL: func.func @per_token(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: : (tensor<?x8xf32>) -> (tensor<?x8xi8>, tensor<?x1xf32>)
func.func @per_token(%input: tensor<?x8xf32>) -> (tensor<?x8xi8>, tensor<?x1xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<?x8xf32>) -> (tensor<?x8xi8>, tensor<?x1xf32>)
  return %0#0, %0#1 : tensor<?x8xi8>, tensor<?x1xf32>
}

// One scale for the whole tensor.
// CHECK-LABEL: func.func @per_tensor(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: {granularity = "tensor", recipe = "amax", rounding = "half_away"}
// CHECK-SAME: : (tensor<4x8xf16>) -> (tensor<4x8xi8>, tensor<f32>)
func.func @per_tensor(%input: tensor<4x8xf16>) -> (tensor<4x8xi8>, tensor<f32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input) {
    granularity = "tensor", recipe = "amax", rounding = "half_away"
  }
      : (tensor<4x8xf16>) -> (tensor<4x8xi8>, tensor<f32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<f32>
}

// Groups of 4, with a zero point.
// CHECK-LABEL: func.func @per_group(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: {granularity = "group", group_size = 4 : i64, out_dtype = "u8", symmetric = false}
// CHECK-SAME: : (tensor<2x4x8xf32>) -> (tensor<2x4x8xi8>, tensor<2x4x2xf32>, tensor<2x4x2xi32>)
func.func @per_group(%input: tensor<2x4x8xf32>) -> (tensor<2x4x8xi8>, tensor<2x4x2xf32>, tensor<2x4x2xi32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {
    granularity = "group", group_size = 4 : i64, symmetric = false, out_dtype = "u8"
  }
      : (tensor<2x4x8xf32>) -> (tensor<2x4x8xi8>, tensor<2x4x2xf32>, tensor<2x4x2xi32>)
  return %0#0, %0#1, %0#2 : tensor<2x4x8xi8>, tensor<2x4x2xf32>, tensor<2x4x2xi32>
}

// ONNX's DynamicQuantizeLinear.
// CHECK-LABEL: func.func @onnx(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: {granularity = "tensor", out_dtype = "u8", recipe = "onnx", symmetric = false}
// CHECK-SAME: : (tensor<8xf32>) -> (tensor<8xi8>, tensor<f32>, tensor<i32>)
func.func @onnx(%input: tensor<8xf32>) -> (tensor<8xi8>, tensor<f32>, tensor<i32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {
    granularity = "tensor", recipe = "onnx", symmetric = false, out_dtype = "u8"
  }
      : (tensor<8xf32>) -> (tensor<8xi8>, tensor<f32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<8xi8>, tensor<f32>, tensor<i32>
}

// fbgemm's zero point.
// CHECK-LABEL: func.func @fbgemm(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: {out_dtype = "u4", recipe = "fbgemm", symmetric = false}
// CHECK-SAME: : (tensor<4x8xbf16>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>)
func.func @fbgemm(%input: tensor<4x8xbf16>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {recipe = "fbgemm", symmetric = false, out_dtype = "u4"}
      : (tensor<4x8xbf16>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>
}

// 8-bit float codes.
// CHECK-LABEL: func.func @float_codes(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: {out_dtype = "e4m3", recipe = "amax"}
// CHECK-SAME: : (tensor<?x8xf32>) -> (tensor<?x8xf8E4M3FN>, tensor<?x1xf32>)
func.func @float_codes(%input: tensor<?x8xf32>) -> (tensor<?x8xf8E4M3FN>, tensor<?x1xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input) {out_dtype = "e4m3", recipe = "amax"}
      : (tensor<?x8xf32>) -> (tensor<?x8xf8E4M3FN>, tensor<?x1xf32>)
  return %0#0, %0#1 : tensor<?x8xf8E4M3FN>, tensor<?x1xf32>
}

// torch's choose_qparams: a narrower range of codes and a lower bound for the scale.
// CHECK-LABEL: func.func @range_and_smallest_scale(
// CHECK: "qmlir.dynamic_quantize"(%{{[^,)]*}})
// CHECK-SAME: {clamp = array<i64: -127, 127>, eps = 2.44140625E-4 : f32, granularity = "tensor", symmetric = false}
// CHECK-SAME: : (tensor<?x8xf32>) -> (tensor<?x8xi8>, tensor<f32>, tensor<i32>)
func.func @range_and_smallest_scale(%input: tensor<?x8xf32>) -> (tensor<?x8xi8>, tensor<f32>, tensor<i32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {clamp = array<i64: -127, 127>, eps = 2.44140625E-4 : f32, granularity = "tensor", symmetric = false}
      : (tensor<?x8xf32>) -> (tensor<?x8xi8>, tensor<f32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<?x8xi8>, tensor<f32>, tensor<i32>
}
