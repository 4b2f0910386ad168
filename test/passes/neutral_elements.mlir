// RUN: qmlir-opt %s --pass-pipeline=qmlir-neutral-elements | filecheck %s

#id = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>

// A signed minimum becomes an unsigned one of the integers with the sign bit flipped, which have the same order.
// CHECK-LABEL: func.func @smallest(
// CHECK: %[[LARGEST:.*]] = arith.constant 2147483647 : i32
// CHECK: %[[START:.*]] = arith.xori %[[LARGEST]],
// CHECK: %[[INIT:.*]] = linalg.fill ins(%[[START]] : i32)
// CHECK: %[[KEY:.*]] = linalg.generic {{.*}} outs(%[[INIT]] : tensor<i32>)
// CHECK: ^bb0(%[[IN:.*]]: i32, %[[ACC:.*]]: i32):
// CHECK: %[[SIGN:.*]] = arith.constant -2147483648 : i32
// CHECK: %[[FLIPPED:.*]] = arith.xori %[[IN]], %[[SIGN]]
// CHECK: arith.minui %[[FLIPPED]], %[[ACC]]
// CHECK: linalg.generic {{.*}} ins(%[[KEY]] : tensor<i32>)
// CHECK: arith.xori
func.func @smallest(%x: tensor<64xi32>) -> tensor<i32> {
  %largest = arith.constant 2147483647 : i32
  %e = tensor.empty() : tensor<i32>
  %start = linalg.fill ins(%largest : i32) outs(%e : tensor<i32>) -> tensor<i32>
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi32>) outs(%start : tensor<i32>) {
  ^bb0(%in: i32, %acc: i32):
    %1 = arith.minsi %in, %acc : i32
    linalg.yield %1 : i32
  } -> tensor<i32>
  return %0 : tensor<i32>
}

// The `and` of all elements becomes the complement of the `or` of their complements, in 32 bits.
// CHECK-LABEL: func.func @all(
// CHECK: ^bb0(%[[IN:.*]]: i1, %[[ACC:.*]]: i32):
// CHECK: %[[WIDE:.*]] = arith.extsi %[[IN]] : i1 to i32
// CHECK: %[[NOT:.*]] = arith.xori %[[WIDE]], %{{.*}} : i32
// CHECK: arith.ori %[[NOT]], %[[ACC]] : i32
// CHECK: arith.trunci %{{.*}} : i32 to i1
func.func @all(%x: tensor<64xi1>, %start: tensor<i1>) -> tensor<i1> {
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi1>) outs(%start : tensor<i1>) {
  ^bb0(%in: i1, %acc: i1):
    %1 = arith.andi %in, %acc : i1
    linalg.yield %1 : i1
  } -> tensor<i1>
  return %0 : tensor<i1>
}

// A pooling of codes is computed in 32 bits; its window operand stays.
// CHECK-LABEL: func.func @pooled(
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<1x16x16x8xi8>, tensor<16x16xi8>) outs(%{{.*}} : tensor<1x1x1x8xi32>)
// CHECK: arith.extsi
// CHECK: arith.maxui
func.func @pooled(%x: tensor<1x16x16x8xi8>) -> tensor<1x1x1x8xi8> {
  %least = arith.constant -128 : i8
  %e = tensor.empty() : tensor<1x1x1x8xi8>
  %start = linalg.fill ins(%least : i8) outs(%e : tensor<1x1x1x8xi8>) -> tensor<1x1x1x8xi8>
  %window = tensor.empty() : tensor<16x16xi8>
  %0 = linalg.pooling_nhwc_max {strides = dense<1> : vector<2xi64>, dilations = dense<1> : vector<2xi64>}
      ins(%x, %window : tensor<1x16x16x8xi8>, tensor<16x16xi8>) outs(%start : tensor<1x1x1x8xi8>) -> tensor<1x1x1x8xi8>
  return %0 : tensor<1x1x1x8xi8>
}

// Of the 64-bit reductions, the unsigned ones become signed ones.
// CHECK-LABEL: func.func @wide(
// CHECK: arith.maxsi %{{.*}} : i64
// CHECK: arith.minsi %{{.*}} : i64
// CHECK-NOT: arith.xori
// CHECK: return
func.func @wide(%x: tensor<64xi64>, %start: tensor<i64>) -> (tensor<i64>, tensor<i64>) {
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi64>) outs(%start : tensor<i64>) {
  ^bb0(%in: i64, %acc: i64):
    %2 = arith.maxui %in, %acc : i64
    linalg.yield %2 : i64
  } -> tensor<i64>
  %1 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi64>) outs(%start : tensor<i64>) {
  ^bb0(%in: i64, %acc: i64):
    %2 = arith.minsi %in, %acc : i64
    linalg.yield %2 : i64
  } -> tensor<i64>
  return %0, %1 : tensor<i64>, tensor<i64>
}

// Unchanged: 32-bit sums, and ops without a reduction loop.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT: arith.xori
// CHECK-NOT: arith.extsi
// CHECK: return
func.func @stays(%x: tensor<64xi32>, %start: tensor<i32>, %y: tensor<64xi8>) -> (tensor<i32>, tensor<64xi8>) {
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<64xi32>) outs(%start : tensor<i32>) {
  ^bb0(%in: i32, %acc: i32):
    %2 = arith.addi %in, %acc : i32
    linalg.yield %2 : i32
  } -> tensor<i32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%y : tensor<64xi8>) outs(%y : tensor<64xi8>) {
  ^bb0(%in: i8, %out: i8):
    %2 = arith.minsi %in, %out : i8
    linalg.yield %2 : i8
  } -> tensor<64xi8>
  return %0, %1 : tensor<i32>, tensor<64xi8>
}

// Unchanged: fewer elements than a subgroup has lanes are not reduced across lanes.
// CHECK-LABEL: func.func @few(
// CHECK-NOT: arith.xori
// CHECK: arith.minsi
// CHECK: return
func.func @few(%x: tensor<8xi32>, %start: tensor<i32>) -> tensor<i32> {
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<8xi32>) outs(%start : tensor<i32>) {
  ^bb0(%in: i32, %acc: i32):
    %1 = arith.minsi %in, %acc : i32
    linalg.yield %1 : i32
  } -> tensor<i32>
  return %0 : tensor<i32>
}

// The number of reduced elements is the size of the window, not the quotient of the operand's and the result's sizes.
// CHECK-LABEL: func.func @a_large_window(
// CHECK: arith.maxui
// CHECK: return
func.func @a_large_window(%x: tensor<1x12x12x4xi32>, %w: tensor<8x8xi32>, %start: tensor<1x5x5x4xi32>)
    -> tensor<1x5x5x4xi32> {
  %0 = linalg.pooling_nhwc_max ins(%x, %w : tensor<1x12x12x4xi32>, tensor<8x8xi32>)
      outs(%start : tensor<1x5x5x4xi32>) -> tensor<1x5x5x4xi32>
  return %0 : tensor<1x5x5x4xi32>
}
