// RUN: qmlir-opt %s --pass-pipeline=qmlir-explicit-sign | filecheck %s

#row = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// A sum of bytes: (x ^ 128) - 128 on the zero-extended byte.
// CHECK-LABEL: func.func @sum(
// CHECK: ^bb0(%[[X:.*]]: i8, %[[ACC:.*]]: i32):
// CHECK-NEXT: %[[SIGN:.*]] = arith.constant 128 : i32
// CHECK-NEXT: %[[WIDE:.*]] = arith.extui %[[X]] : i8 to i32
// CHECK-NEXT: %[[FLIP:.*]] = arith.xori %[[WIDE]], %[[SIGN]]
// CHECK-NEXT: %[[CODE:.*]] = arith.subi %[[FLIP]], %[[SIGN]]
// CHECK-NEXT: arith.addi %[[ACC]], %[[CODE]]
func.func @sum(%x: tensor<4x8xi8>, %init: tensor<4xi32>) -> tensor<4xi32> {
  %0 = linalg.generic {indexing_maps = [#row, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xi8>) outs(%init : tensor<4xi32>) {
  ^bb0(%in: i8, %acc: i32):
    %1 = arith.extsi %in : i8 to i32
    %2 = arith.addi %acc, %1 : i32
    linalg.yield %2 : i32
  } -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// A contraction keeps its extensions, by which matrix instructions are recognised.
// CHECK-LABEL: func.func @contraction(
// CHECK: arith.extsi
// CHECK: arith.extsi
// CHECK-NOT: arith.extui
// CHECK: return
func.func @contraction(%x: tensor<4x8xi8>, %w: tensor<8x16xi8>, %init: tensor<4x16xi32>) -> tensor<4x16xi32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x8xi8>, tensor<8x16xi8>) outs(%init : tensor<4x16xi32>) {
  ^bb0(%in: i8, %in_0: i8, %acc: i32):
    %1 = arith.extsi %in : i8 to i32
    %2 = arith.extsi %in_0 : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<4x16xi32>
  return %0 : tensor<4x16xi32>
}

// The extension of wider integers is unchanged.
// CHECK-LABEL: func.func @wider(
// CHECK-NOT: arith.extui
// CHECK: return
func.func @wider(%x: i16) -> i32 {
  %0 = arith.extsi %x : i16 to i32
  return %0 : i32
}
