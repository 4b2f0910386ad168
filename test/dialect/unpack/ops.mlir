// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// Two codes per byte, the first in the low half.
// CHECK-LABEL: func.func @int4(
// CHECK: "qmlir.unpack"(%{{[^,)]*}})
// CHECK-SAME: {dtype = "i4"}
// CHECK-SAME: : (tensor<4x8xi8>) -> tensor<4x16xi8>
func.func @int4(%input: tensor<4x8xi8>) -> tensor<4x16xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "i4"}
      : (tensor<4x8xi8>) -> tensor<4x16xi8>
  return %0 : tensor<4x16xi8>
}

// Five codes in three bytes, the first in the high half.
// CHECK-LABEL: func.func @odd(
// CHECK: "qmlir.unpack"(%{{[^,)]*}})
// CHECK-SAME: {dtype = "u4", packing = "high_first"}
// CHECK-SAME: : (tensor<?x3xi8>) -> tensor<?x5xi8>
func.func @odd(%input: tensor<?x3xi8>) -> tensor<?x5xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "u4", packing = "high_first"}
      : (tensor<?x3xi8>) -> tensor<?x5xi8>
  return %0 : tensor<?x5xi8>
}

// Codes interleaved in words of 32 bits.
// CHECK-LABEL: func.func @interleaved(
// CHECK: "qmlir.unpack"(%{{[^,)]*}})
// CHECK-SAME: {dtype = "i2", packing = "interleaved"}
// CHECK-SAME: : (tensor<8xi8>) -> tensor<32xi8>
func.func @interleaved(%input: tensor<8xi8>) -> tensor<32xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "i2", packing = "interleaved"}
      : (tensor<8xi8>) -> tensor<32xi8>
  return %0 : tensor<32xi8>
}

// If the length is dynamic, the result has all codes that the bytes hold.
// CHECK-LABEL: func.func @bits(
// CHECK: "qmlir.unpack"(%{{[^,)]*}})
// CHECK-SAME: {dtype = "i1"}
// CHECK-SAME: : (tensor<2x?xi8>) -> tensor<2x?xi8>
func.func @bits(%input: tensor<2x?xi8>) -> tensor<2x?xi8> {
  %0 = "qmlir.unpack"(%input) {dtype = "i1"}
      : (tensor<2x?xi8>) -> tensor<2x?xi8>
  return %0 : tensor<2x?xi8>
}
