// Named operands may be in any order. The names may be left out if only the required operands are given.
//
// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify,qmlir-lower-to-linalg | filecheck %s

// CHECK-LABEL: func.func @ordered(
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1
func.func @ordered(%x: tensor<4x8xi8>, %w: tensor<8x6xi8>) -> tensor<4x6xi32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) : (tensor<4x8xi8>, tensor<8x6xi8>) -> tensor<4x6xi32>
  return %0 : tensor<4x6xi32>
}

// CHECK-LABEL: func.func @turned(
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1
func.func @turned(%x: tensor<4x8xi8>, %w: tensor<8x6xi8>) -> tensor<4x6xi32> {
  %0 = "qmlir.scaled_matmul"(%w, %x) {operand_names = ["rhs", "lhs"]}
    : (tensor<8x6xi8>, tensor<4x8xi8>) -> tensor<4x6xi32>
  return %0 : tensor<4x6xi32>
}
