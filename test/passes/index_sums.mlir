// RUN: qmlir-opt %s --pass-pipeline=qmlir-index-sums | filecheck %s

#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>

// The index of the reduction loop becomes an operand; the index of the parallel loop stays.
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

// The index of a dynamic loop stays.
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

// A minimum and its position: the block arguments of both accumulators come after that of the new operand.
// CHECK-LABEL: func.func @least(
// CHECK: %[[IOTA:.*]] = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi32>
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}}, %[[IOTA]] : tensor<4xf32>, tensor<4xi32>) outs(%{{.*}}, %{{.*}} : tensor<f32>, tensor<i32>)
// CHECK: ^bb0(%[[IN:.*]]: f32, %[[AT:.*]]: i32, %[[LEAST:.*]]: f32, %[[WHERE:.*]]: i32):
// CHECK: arith.minimumf %[[IN]], %[[LEAST]]
// CHECK: arith.select %{{.*}}, %{{.*}}, %[[WHERE]]
func.func @least(%x: tensor<4xf32>, %least: tensor<f32>, %where: tensor<i32>) -> (tensor<f32>, tensor<i32>) {
  %0:2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> ()>],
                         iterator_types = ["reduction"]}
      ins(%x : tensor<4xf32>) outs(%least, %where : tensor<f32>, tensor<i32>) {
  ^bb0(%in: f32, %low: f32, %at: i32):
    %i = linalg.index 0 : index
    %here = arith.index_cast %i : index to i32
    %1 = arith.minimumf %in, %low : f32
    %2 = arith.cmpf olt, %in, %low : f32
    %3 = arith.select %2, %here, %at : i32
    linalg.yield %1, %3 : f32, i32
  } -> (tensor<f32>, tensor<i32>)
  return %0#0, %0#1 : tensor<f32>, tensor<i32>
}
