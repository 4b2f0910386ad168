// RUN: qmlir-opt %s --pass-pipeline=qmlir-sort-in-stages | filecheck %s

// 130 elements are padded to 256 positions. 36 stages compare the elements at positions; padding reads the last one.
// CHECK-LABEL: func.func @keys
// CHECK-NOT: iree_linalg_ext.sort
// CHECK-COUNT-36: arith.xori
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: -> tensor<3x256xi32>
// CHECK-NOT: arith.xori
// CHECK: %[[PLACES:.*]] = tensor.extract_slice %{{.*}}[0, 0] [3, 130] [1, 1]
// CHECK: %[[SORTED:.*]] = linalg.generic {{.*}} ins(%[[PLACES]]
// CHECK: return %[[SORTED]]
func.func @keys(%x: tensor<3x130xf32>) -> tensor<3x130xf32> {
  %0 = iree_linalg_ext.sort dimension(1) outs(%x : tensor<3x130xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<3x130xf32>
  return %0 : tensor<3x130xf32>
}

// Keys with indices, sorted along the first axis, whose size is a power of two: there is no padding. Both are gathered
// in the order of the sorted positions.
// CHECK-LABEL: func.func @pairs
// CHECK-NOT: iree_linalg_ext.sort
// CHECK: -> tensor<128x?xi32>
// CHECK-NOT: arith.minsi
// CHECK-NOT: arith.maxsi
// CHECK: %[[ORDER:.*]] = flow.tensor.tie_shape
// CHECK-NEXT: %[[KEYS:.*]] = tensor.empty
// CHECK: linalg.generic {{.*}} ins(%[[ORDER]]
// CHECK: linalg.generic {{.*}} ins(%[[ORDER]]
// CHECK: return
func.func @pairs(%x: tensor<128x?xi32>, %i: tensor<128x?xi64>) -> (tensor<128x?xi32>, tensor<128x?xi64>) {
  %0:2 = iree_linalg_ext.sort dimension(0) outs(%x, %i : tensor<128x?xi32>, tensor<128x?xi64>) {
  ^bb0(%a: i32, %b: i32, %j: i64, %k: i64):
    %1 = arith.cmpi sge, %a, %b : i32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<128x?xi32>, tensor<128x?xi64>
  return %0#0, %0#1 : tensor<128x?xi32>, tensor<128x?xi64>
}

// Short lines of a tensor with many elements, or with a dynamic number of them, are sorted in stages.
// CHECK-LABEL: func.func @experts
// CHECK-NOT: iree_linalg_ext.sort
// CHECK: return
func.func @experts(%x: tensor<32x16xf32>, %y: tensor<?x16xf32>) -> (tensor<32x16xf32>, tensor<?x16xf32>) {
  %0 = iree_linalg_ext.sort dimension(1) outs(%x : tensor<32x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<32x16xf32>
  %2 = iree_linalg_ext.sort dimension(1) outs(%y : tensor<?x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %3 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %3 : i1
  } -> tensor<?x16xf32>
  return %0, %2 : tensor<32x16xf32>, tensor<?x16xf32>
}

// CHECK-LABEL: func.func @fewer
// CHECK-COUNT-2: iree_linalg_ext.sort
func.func @fewer(%x: tensor<31x16xf32>, %y: tensor<?x15xf32>) -> (tensor<31x16xf32>, tensor<?x15xf32>) {
  %0 = iree_linalg_ext.sort dimension(1) outs(%x : tensor<31x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<31x16xf32>
  %2 = iree_linalg_ext.sort dimension(1) outs(%y : tensor<?x15xf32>) {
  ^bb0(%a: f32, %b: f32):
    %3 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %3 : i1
  } -> tensor<?x15xf32>
  return %0, %2 : tensor<31x16xf32>, tensor<?x15xf32>
}

// Unchanged: fewer than 128 elements.
// CHECK-LABEL: func.func @short
// CHECK: iree_linalg_ext.sort
func.func @short(%x: tensor<127xf32>) -> tensor<127xf32> {
  %0 = iree_linalg_ext.sort dimension(0) outs(%x : tensor<127xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<127xf32>
  return %0 : tensor<127xf32>
}

// A dynamic number of elements: the stages are loops.
// CHECK-LABEL: func.func @dynamic
// CHECK: %[[BITS:.*]] = math.ctlz
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.xori
// CHECK-NOT: arith.xori
// CHECK-NOT: iree_linalg_ext.sort
// CHECK: return
func.func @dynamic(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = iree_linalg_ext.sort dimension(0) outs(%x : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
