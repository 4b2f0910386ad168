// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse | filecheck %s

// dequant, quantize, unpack, dynamic_quantize.

// (q - z) * s.
// CHECK-LABEL: func.func @dequant(
// CHECK: arith.extsi
// CHECK-NEXT: arith.subi
// CHECK-NEXT: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: linalg.yield
func.func @dequant(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "int"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<i32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// Unsigned codes; the result is rounded once.
// CHECK-LABEL: func.func @dequant_unsigned(
// CHECK: arith.xori
// CHECK: arith.addi
// CHECK: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.truncf
func.func @dequant_unsigned(%input: tensor<4x8xi8>, %scale: tensor<f32>) -> tensor<4x8xf16> {
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"], dtype = "u8"}
      : (tensor<4x8xi8>, tensor<f32>) -> tensor<4x8xf16>
  return %0 : tensor<4x8xf16>
}

// Groups along the last axis become a separate axis.
// CHECK-LABEL: func.func @dequant_groups(
// CHECK: tensor.expand_shape %arg0 {{.*}} output_shape [4, 2, 4]
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg1 : tensor<4x2x4xi8>, tensor<4x2xf32>)
// CHECK: tensor.collapse_shape {{.*}} into tensor<4x8xf32>
func.func @dequant_groups(%input: tensor<4x8xi8>, %scale: tensor<4x2xf32>) -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale) {operand_names = ["input", "scale"]}
      : (tensor<4x8xi8>, tensor<4x2xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// (q - 128) * s + z.
// CHECK-LABEL: func.func @dequant_offset_float(
// CHECK: arith.sitofp
// CHECK-NEXT: arith.mulf
// CHECK: arith.addf
func.func @dequant_offset_float(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<f32>)
    -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    dtype = "u8", zero_mode = "offset_float"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// q * s - z.
// CHECK-LABEL: func.func @dequant_rescale(
// CHECK: arith.mulf
// CHECK: arith.{{addf|subf}}
func.func @dequant_rescale(%input: tensor<4x8xi8>, %scale: tensor<f32>, %zero_point: tensor<f32>) -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale, %zero_point) {
    operand_names = ["input", "scale", "zero_point"],
    zero_mode = "rescale"
  }
      : (tensor<4x8xi8>, tensor<f32>, tensor<f32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// e2m1 codes are decoded by their table.
// CHECK-LABEL: func.func @dequant_fp4(
// CHECK-COUNT-15: arith.select
// CHECK: arith.mulf
func.func @dequant_fp4(%input: tensor<4x4xi8>, %scale: tensor<4x1xf32>) -> tensor<4x8xf32> {
  %0 = "qmlir.dequant"(%input, %scale) {
    operand_names = ["input", "scale"],
    dtype = "e2m1", packing = "low_first"
  }
      : (tensor<4x4xi8>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// clamp(round(x * (1/s)) + z).
// CHECK-LABEL: func.func @quantize(
// CHECK: %[[R:.*]] = arith.divf
// CHECK: arith.mulf %{{.*}}, %[[R]]
// CHECK-NEXT: math.roundeven
// CHECK: arith.select
// CHECK-NEXT: arith.addf
// CHECK-NEXT: arith.maximumf
// CHECK-NEXT: arith.minimumf
// CHECK-NEXT: arith.fptosi
// CHECK-NEXT: arith.trunci
func.func @quantize(%input: tensor<4x8xf32>, %scale: tensor<f32>, %zero_point: tensor<i32>) -> tensor<4x8xi8> {
  %0 = "qmlir.quantize"(%input, %scale, %zero_point) {operand_names = ["input", "scale", "zero_point"]}
      : (tensor<4x8xf32>, tensor<f32>, tensor<i32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// The codes are clamped to the range of u4.
// CHECK-LABEL: func.func @quantize_u4(
// CHECK-DAG: arith.constant 1.500000e+01 : f32
// CHECK: arith.extf
// CHECK: math.trunc
func.func @quantize_u4(%input: tensor<4x8xf16>, %scale: tensor<1x8xf32>) -> tensor<4x8xi8> {
  %0 = "qmlir.quantize"(%input, %scale) {
    operand_names = ["input", "scale"],
    out_dtype = "u4", rounding = "trunc"
  }
      : (tensor<4x8xf16>, tensor<1x8xf32>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// Low nibble first.
// CHECK-LABEL: func.func @unpack(
// CHECK: arith.constant dense<[0, 4]> : tensor<2xi8>
// CHECK: arith.shrui
// CHECK: arith.andi
// CHECK: arith.xori
// CHECK-NEXT: arith.subi
// CHECK: tensor.collapse_shape {{.*}} into tensor<4x16xi8>
func.func @unpack(%input: tensor<4x8xi8>) -> tensor<4x16xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<4x8xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// Four codes per byte, the first in the highest bits; unsigned codes are not sign-extended.
// CHECK-LABEL: func.func @unpack_u2(
// CHECK: arith.constant dense<[6, 4, 2, 0]> : tensor<4xi8>
// CHECK: arith.andi
// CHECK-NEXT: arith.trunci
func.func @unpack_u2(%input: tensor<4x2xi8>) -> tensor<4x8xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "u2", packing = "high_first"}
      : (tensor<4x2xi8>) -> tensor<4x8xi8>
  return %0 : tensor<4x8xi8>
}

// Words of 32 bits: even elements in the low half, odd ones in the high half.
// CHECK-LABEL: func.func @unpack_interleaved(
// CHECK: tensor.expand_shape %arg0 {{.*}} output_shape [2, 2, 2]
// CHECK: tensor.collapse_shape {{.*}} : tensor<2x2x2x2xi8> into tensor<16xi8>
func.func @unpack_interleaved(%input: tensor<8xi8>) -> tensor<16xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "u4", packing = "interleaved"}
      : (tensor<8xi8>) -> tensor<16xi8>
  return %0 : tensor<16xi8>
}

// The bits of |x| are compared as integers to find the largest of a row, NaN above all; 127.5 is half the code range.
// CHECK-LABEL: func.func @dynamic_symmetric(
// CHECK-DAG: %[[HALF:.*]] = arith.constant 1.275000e+02 : f32
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK: math.absf
// CHECK-NEXT: arith.bitcast
// CHECK-NEXT: arith.maxsi
// CHECK: arith.divf %{{.*}}, %[[HALF]]
// CHECK: math.roundeven
// CHECK: tensor.expand_shape {{.*}} output_shape [4, 1]
func.func @dynamic_symmetric(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input)
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// The scale is the largest |x| divided by the largest code; an all-zero row has scale 1.
// CHECK-LABEL: func.func @dynamic_amax(
// CHECK-DAG: %[[MAX:.*]] = arith.constant 1.270000e+02 : f32
// CHECK: arith.divf %{{.*}}, %[[MAX]]
// CHECK-NEXT: arith.cmpf oeq
// CHECK-NEXT: arith.select
func.func @dynamic_amax(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input) {recipe = "amax"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x1xf32>
}

// The smallest and the largest value, a range that contains 0, and a zero point.
// CHECK-LABEL: func.func @dynamic_affine(
// CHECK: arith.negf
// CHECK-NEXT: arith.bitcast
// CHECK-NEXT: arith.maxsi
// CHECK-NEXT: arith.bitcast
// CHECK-NEXT: arith.maxsi
// CHECK: arith.subf
// CHECK: arith.divf
// CHECK: arith.fptosi
func.func @dynamic_affine(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {symmetric = false, out_dtype = "u8"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>
}

// ONNX divides by the scale instead of multiplying by its reciprocal.
// CHECK-LABEL: func.func @dynamic_onnx(
// CHECK: iterator_types = ["reduction", "reduction"]
// CHECK: ^bb0(%[[X:.*]]: f32, %[[S:.*]]: f32, %{{.*}}: i32, %{{.*}}: i8):
// CHECK: arith.divf %[[X]], %[[S]]
func.func @dynamic_onnx(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<f32>, tensor<i32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {
    granularity = "tensor", recipe = "onnx", symmetric = false, out_dtype = "u8"
  }
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<f32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<f32>, tensor<i32>
}

// fbgemm computes in f64.
// CHECK-LABEL: func.func @dynamic_fbgemm(
// CHECK: arith.extf %{{.*}} : f32 to f64
// CHECK: arith.divf %{{.*}} : f64
// CHECK: arith.truncf %{{.*}} : f64 to f32
func.func @dynamic_fbgemm(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>) {
  %0:3 = "qmlir.dynamic_quantize"(%input) {recipe = "fbgemm", symmetric = false, out_dtype = "u8"}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x1xi32>
}

// One scale for every 4 elements.
// CHECK-LABEL: func.func @dynamic_groups(
// CHECK: tensor.expand_shape %arg0 {{.*}} output_shape [4, 2, 4]
// CHECK: tensor.collapse_shape {{.*}} into tensor<4x8xi8>
func.func @dynamic_groups(%input: tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x2xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input) {granularity = "group", group_size = 4 : i64}
      : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x2xf32>)
  return %0#0, %0#1 : tensor<4x8xi8>, tensor<4x2xf32>
}
