// RUN: qmlir-opt %s --pass-pipeline=qmlir-order-loops | filecheck %s

// CHECK-DAG: #[[IN:.*]] = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: func.func @transposed_sum(
// CHECK: linalg.generic {indexing_maps = [#[[IN]], #[[OUT]]], iterator_types = ["parallel", "parallel", "reduction"]}
func.func @transposed_sum(%x: tensor<4x5x3xf32>, %out: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(a, b, k) -> (a, b, k)>, affine_map<(a, b, k) -> (b, a)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<4x5x3xf32>) outs(%out : tensor<5x4xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %1 = arith.addf %acc, %in : f32
    linalg.yield %1 : f32
  } -> tensor<5x4xf32>
  return %0 : tensor<5x4xf32>
}

// The named op has the channels as its last parallel loop; its result has them in front of the pixels.
// CHECK-LABEL: func.func @depthwise(
// CHECK: linalg.generic {{.*}}"parallel", "parallel", "parallel", "parallel", "reduction", "reduction"
func.func @depthwise(%x: tensor<1x4x6x6xf32>, %w: tensor<4x3x3xf32>, %out: tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> {
  %0 = linalg.depthwise_conv_2d_nchw_chw
      ins(%x, %w : tensor<1x4x6x6xf32>, tensor<4x3x3xf32>) outs(%out : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  return %0 : tensor<1x4x4x4xf32>
}

// Unchanged: a single window, where only the channels have several steps, loops in the right order, and no reduction.
// CHECK-LABEL: func.func @stays(
// CHECK: linalg.depthwise_conv_2d_nchw_chw
// CHECK: linalg.matmul
// CHECK: linalg.transpose
func.func @stays(%x: tensor<1x4x3x3xf32>, %w: tensor<4x3x3xf32>, %out: tensor<1x4x1x1xf32>, %a: tensor<4x5xf32>,
    %b: tensor<5x3xf32>, %c: tensor<4x3xf32>, %t: tensor<3x4xf32>) -> (tensor<1x4x1x1xf32>, tensor<3x4xf32>) {
  %0 = linalg.depthwise_conv_2d_nchw_chw
      ins(%x, %w : tensor<1x4x3x3xf32>, tensor<4x3x3xf32>) outs(%out : tensor<1x4x1x1xf32>) -> tensor<1x4x1x1xf32>
  %1 = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<5x3xf32>) outs(%c : tensor<4x3xf32>) -> tensor<4x3xf32>
  %2 = linalg.transpose ins(%1 : tensor<4x3xf32>) outs(%t : tensor<3x4xf32>) permutation = [1, 0]
  return %0, %2 : tensor<1x4x1x1xf32>, tensor<3x4xf32>
}
