// RUN: qmlir-opt %s --pass-pipeline=qmlir-keep-nan | filecheck %s

#id = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>

// A NaN is neither above nor below anything.
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

// Either may be NaN.
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

// The bounds of a requantisation, whose NaN was replaced, and the combination of a reduction stay.
// CHECK-LABEL: func.func @stays(
// CHECK: arith.maximumf
// CHECK-NEXT: arith.minimumf
// CHECK: arith.maximumf
func.func @stays(%x: tensor<4xf32>, %z: tensor<4xi32>, %m: tensor<f32>) -> (tensor<4xf32>, tensor<f32>) {
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
  %1 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<4xf32>) outs(%m : tensor<f32>) {
  ^bb0(%in: f32, %acc: f32):
    %2 = arith.maximumf %acc, %in : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  return %0, %1 : tensor<4xf32>, tensor<f32>
}
