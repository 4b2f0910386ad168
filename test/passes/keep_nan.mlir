// RUN: qmlir-opt %s --pass-pipeline=qmlir-keep-nan | filecheck %s

#id = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>

// A relu: comparisons with NaN are false, so that the select returns NaN.
// CHECK-LABEL: func.func @relu(
// CHECK: ^bb0(%[[X:.*]]: f32, %{{.*}}: f32):
// CHECK: %[[BELOW:.*]] = arith.cmpf ogt, %[[ZERO:.*]], %[[X]]
// CHECK: arith.select %[[BELOW]], %[[ZERO]], %[[X]]
func.func @relu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %1 = arith.maximumf %in, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Either operand may be NaN, so that a second comparison is needed.
// CHECK-LABEL: func.func @both(
// CHECK: ^bb0(%[[X:.*]]: f32, %[[Y:.*]]: f32, %{{.*}}: f32):
// CHECK: arith.cmpf olt, %[[X]], %[[Y]]
// CHECK: arith.select %{{.*}}, %[[X]], %[[Y]]
// CHECK: arith.cmpf uno, %[[X]], %[[X]]
// CHECK: arith.select
func.func @both(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %1 = arith.minimumf %in, %other : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The bounds of a requantisation stay, because it has already replaced NaN.
// CHECK-LABEL: func.func @bounds(
// CHECK: arith.maximumf
// CHECK-NEXT: arith.minimumf
func.func @bounds(%x: tensor<4xf32>, %z: tensor<4xi32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %high = arith.constant 127.0 : f32
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %z : tensor<4xf32>, tensor<4xi32>) outs(%x : tensor<4xf32>) {
  ^bb0(%in: f32, %zero_point: i32, %out: f32):
    %round = math.roundeven %in : f32
    %nan = arith.cmpf uno, %in, %in : f32
    %number = arith.select %nan, %zero, %round : f32
    %zf = arith.sitofp %zero_point : i32 to f32
    %moved = arith.addf %number, %zf : f32
    %low = arith.maximumf %moved, %zero : f32
    %code = arith.minimumf %low, %high : f32
    linalg.yield %code : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A reduction becomes one of integers that have the order of the floats, with NaN above all of them.
// CHECK-LABEL: func.func @largest(
// CHECK-SAME: %[[X:.*]]: tensor<?xf16>
// CHECK: %[[INIT:.*]] = linalg.fill ins(%{{.*}} : i32)
// CHECK: %[[KEY:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?xf16>) outs(%[[INIT]] : tensor<i32>)
// CHECK: ^bb0(%[[IN:.*]]: f16, %[[ACC:.*]]: i32):
// CHECK: arith.cmpf uno, %[[IN]], %[[IN]]
// CHECK: arith.maxsi %{{.*}}, %[[ACC]] : i32
// CHECK: linalg.generic {{.*}} ins(%[[KEY]] : tensor<i32>)
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT: maximumf
func.func @largest(%x: tensor<?xf16>) -> tensor<f16> {
  %low = arith.constant 0xFC00 : f16
  %empty = tensor.empty() : tensor<f16>
  %init = linalg.fill ins(%low : f16) outs(%empty : tensor<f16>) -> tensor<f16>
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<?xf16>) outs(%init : tensor<f16>) {
  ^bb0(%in: f16, %acc: f16):
    %1 = arith.maximumf %acc, %in : f16
    linalg.yield %1 : f16
  } -> tensor<f16>
  return %0 : tensor<f16>
}

// A pooling becomes such a reduction too.
// CHECK-LABEL: func.func @pooling(
// CHECK-NOT: linalg.pooling
// CHECK: iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK: arith.minsi
func.func @pooling(%x: tensor<1x8x8x3xf32>, %init: tensor<1x4x4x3xf32>) -> tensor<1x4x4x3xf32> {
  %window = tensor.empty() : tensor<2x2xf32>
  %0 = linalg.pooling_nhwc_min {strides = dense<2> : vector<2xi64>}
      ins(%x, %window : tensor<1x8x8x3xf32>, tensor<2x2xf32>) outs(%init : tensor<1x4x4x3xf32>) -> tensor<1x4x4x3xf32>
  return %0 : tensor<1x4x4x3xf32>
}

// If another result reads the running maximum, such as its position, the maximum becomes comparisons and selects.
// CHECK-LABEL: func.func @place(
// CHECK-NOT: maximumf
// CHECK: arith.cmpf uno
func.func @place(%x: tensor<4xf32>, %m: tensor<f32>, %p: tensor<i32>) -> tensor<i32> {
  %0:2 = linalg.generic {indexing_maps = [#id, #none, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<4xf32>) outs(%m, %p : tensor<f32>, tensor<i32>) {
  ^bb0(%in: f32, %acc: f32, %place: i32):
    %i = linalg.index 0 : index
    %here = arith.index_cast %i : index to i32
    %1 = arith.maximumf %in, %acc : f32
    %more = arith.cmpf ogt, %in, %acc : f32
    %2 = arith.select %more, %here, %place : i32
    linalg.yield %1, %2 : f32, i32
  } -> (tensor<f32>, tensor<i32>)
  return %0#1 : tensor<i32>
}

// The maximum of a softmax stays: the sum of exponentials propagates NaN to the whole row.
// CHECK-LABEL: func.func @softmax(
// CHECK: arith.maximumf
// CHECK-NOT: maxsi
func.func @softmax(%x: tensor<4xf32>, %m: tensor<f32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<4xf32>) outs(%m : tensor<f32>) {
  ^bb0(%in: f32, %acc: f32):
    %2 = arith.maximumf %acc, %in : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  %1 = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel"]}
      ins(%x, %0 : tensor<4xf32>, tensor<f32>) outs(%x : tensor<4xf32>) {
  ^bb0(%in: f32, %largest: f32, %out: f32):
    %2 = arith.subf %in, %largest : f32
    %3 = math.exp %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
