// RUN: qmlir-opt %s --pass-pipeline=qmlir-index-sums | filecheck %s

#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>

// The summed index is an operand; the other stays.
// CHECK-LABEL: func.func @earlier(
// CHECK: %[[IOTA:.*]] = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi32>
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}}, %[[IOTA]] : tensor<4xi32>, tensor<4xi32>)
// CHECK: ^bb0(%{{.*}}: i32, %[[AT:.*]]: i32, %[[ACC:.*]]: i32):
// CHECK: %[[I:.*]] = arith.index_cast %[[AT]] : i32 to index
// CHECK: linalg.index 1
// CHECK-NOT: linalg.index 0
// CHECK: arith.addi %[[ACC]]
func.func @earlier(%x: tensor<4xi32>, %init: tensor<3xi32>) -> tensor<3xi32> {
  %0 = linalg.generic {indexing_maps = [#row, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<4xi32>) outs(%init : tensor<3xi32>) {
  ^bb0(%in: i32, %acc: i32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %before = arith.cmpi slt, %i, %j : index
    %one = arith.extui %before : i1 to i32
    %1 = arith.addi %acc, %one : i32
    linalg.yield %1 : i32
  } -> tensor<3xi32>
  return %0 : tensor<3xi32>
}

// Nothing is made for a dynamic loop.
// CHECK-LABEL: func.func @dynamic(
// CHECK: linalg.index 0
func.func @dynamic(%x: tensor<?xi32>, %init: tensor<3xi32>) -> tensor<3xi32> {
  %0 = linalg.generic {indexing_maps = [#row, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<?xi32>) outs(%init : tensor<3xi32>) {
  ^bb0(%in: i32, %acc: i32):
    %i = linalg.index 0 : index
    %at = arith.index_cast %i : index to i32
    %1 = arith.addi %acc, %at : i32
    linalg.yield %1 : i32
  } -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
