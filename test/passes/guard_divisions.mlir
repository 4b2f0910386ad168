// RUN: qmlir-opt %s --pass-pipeline='qmlir-guard-divisions' | filecheck %s

// A divisor that may be zero: an assertion, and a division by one if it does not hold.
// CHECK-LABEL: func.func @size(
// CHECK: %[[KNOWN:.*]] = arith.cmpi ne, %arg1, %{{.*}} : i64
// CHECK: cf.assert %[[KNOWN]], "a size is divided by zero
// CHECK: %[[DIVISOR:.*]] = arith.select %[[KNOWN]], %arg1, %{{.*}} : i64
// CHECK: arith.divsi %arg0, %[[DIVISOR]] : i64
func.func @size(%total: i64, %others: i64) -> i64 {
  %0 = arith.divsi %total, %others : i64
  return %0 : i64
}

// CHECK-LABEL: func.func @index(
// CHECK: cf.assert
// CHECK: arith.remui %arg0, %{{.*}} : index
func.func @index(%total: index, %others: index) -> index {
  %0 = arith.remui %total, %others : index
  return %0 : index
}

// A constant that is not zero, and the elements of tensors, which devices divide without a trap.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT: cf.assert
// CHECK: return
func.func @stays(%n: index, %x: tensor<4xi32>, %y: tensor<4xi32>) -> (index, tensor<4xi32>) {
  %c8 = arith.constant 8 : index
  %0 = arith.divui %n, %c8 : index
  %1 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xi32>) outs(%y : tensor<4xi32>) {
  ^bb0(%a: i32, %b: i32):
    %2 = arith.divsi %a, %b : i32
    linalg.yield %2 : i32
  } -> tensor<4xi32>
  return %0, %1 : index, tensor<4xi32>
}
