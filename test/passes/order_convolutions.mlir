// RUN: qmlir-opt --split-input-file --pass-pipeline='qmlir-order-convolutions' %s | filecheck %s

// A fusion barrier keeps IREE from fusing a transpose into the convolution that reads it.
// CHECK-LABEL: func.func @transposed_image(
// CHECK: %[[T:.*]] = linalg.transpose
// CHECK: %[[B:.*]] = util.optimization_barrier {qmlir.barrier_reason = "convolution-order"} %[[T]]
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}} ins(%[[B]], %arg1
func.func @transposed_image(%x: tensor<1x3x6x6xi8>, %w: tensor<4x3x3x3xi8>, %e: tensor<1x6x6x3xi8>,
                            %out: tensor<1x4x4x4xi32>) -> tensor<1x4x4x4xi32> {
  %t = linalg.transpose ins(%x : tensor<1x3x6x6xi8>) outs(%e : tensor<1x6x6x3xi8>) permutation = [0, 2, 3, 1]
  %r = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%t, %w : tensor<1x6x6x3xi8>, tensor<4x3x3x3xi8>) outs(%out : tensor<1x4x4x4xi32>) -> tensor<1x4x4x4xi32>
  return %r : tensor<1x4x4x4xi32>
}

// -----

// Also if there is a conversion between the transpose and the convolution.
// CHECK-LABEL: func.func @converted_image(
// CHECK: linalg.transpose
// CHECK: %[[F:.*]] = linalg.generic
// CHECK: %[[B:.*]] = util.optimization_barrier {{.*}} %[[F]]
// CHECK: linalg.conv_2d_nhwc_fhwc {{.*}} ins(%[[B]], %arg1
#id = affine_map<(a, b, c, d) -> (a, b, c, d)>
func.func @converted_image(%x: tensor<1x3x6x6xi8>, %w: tensor<4x3x3x3xf16>, %e: tensor<1x6x6x3xi8>,
                           %h: tensor<1x6x6x3xf16>, %out: tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> {
  %t = linalg.transpose ins(%x : tensor<1x3x6x6xi8>) outs(%e : tensor<1x6x6x3xi8>) permutation = [0, 2, 3, 1]
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t : tensor<1x6x6x3xi8>) outs(%h : tensor<1x6x6x3xf16>) {
  ^bb0(%a: i8, %b: f16):
    %0 = arith.sitofp %a : i8 to f16
    linalg.yield %0 : f16
  } -> tensor<1x6x6x3xf16>
  %r = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%f, %w : tensor<1x6x6x3xf16>, tensor<4x3x3x3xf16>) outs(%out : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  return %r : tensor<1x4x4x4xf32>
}

// -----

// Channels first in the image, last in the filter: the image is transposed.
// CHECK-DAG: #[[IMAGE:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0 + d3, d1 + d4, d5)>
// CHECK-DAG: #[[FILTER:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d2, d3, d4, d5)>
// CHECK-LABEL: func.func @two_orders(
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<2x6x6xi8>) outs(%{{.*}} : tensor<6x6x2xi8>)
// CHECK: %[[B:.*]] = util.optimization_barrier
// CHECK: linalg.generic {indexing_maps = [#[[IMAGE]], #[[FILTER]], {{.*}} ins(%[[B]], %arg1 : tensor<6x6x2xi8>, tensor<4x3x3x2xi8>)
#x = affine_map<(h, w, f, r, s, c) -> (c, h + r, w + s)>
#w = affine_map<(h, w, f, r, s, c) -> (f, r, s, c)>
#o = affine_map<(h, w, f, r, s, c) -> (h, w, f)>
func.func @two_orders(%x: tensor<2x6x6xi8>, %w: tensor<4x3x3x2xi8>, %out: tensor<4x4x4xi32>) -> tensor<4x4x4xi32> {
  %r = linalg.generic {indexing_maps = [#x, #w, #o],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x6x6xi8>, tensor<4x3x3x2xi8>) outs(%out : tensor<4x4x4xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<4x4x4xi32>
  return %r : tensor<4x4x4xi32>
}

// -----

// The reduction axes are not adjacent in the filter: the filter is transposed.
// CHECK-DAG: #[[FILTER:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d2, d3, d4, d5)>
// CHECK-LABEL: func.func @apart(
// CHECK: linalg.generic {{.*}} ins(%arg1 : tensor<3x3x4x2xi8>) outs(%{{.*}} : tensor<4x3x3x2xi8>)
// CHECK: %[[B:.*]] = util.optimization_barrier
// CHECK: linalg.generic {{.*}}#[[FILTER]]{{.*}} ins(%arg0, %[[B]] : tensor<6x6x2xi8>, tensor<4x3x3x2xi8>)
#x = affine_map<(h, w, f, r, s, c) -> (h + r, w + s, c)>
#w = affine_map<(h, w, f, r, s, c) -> (r, s, f, c)>
#o = affine_map<(h, w, f, r, s, c) -> (h, w, f)>
func.func @apart(%x: tensor<6x6x2xi8>, %w: tensor<3x3x4x2xi8>, %out: tensor<4x4x4xi32>) -> tensor<4x4x4xi32> {
  %r = linalg.generic {indexing_maps = [#x, #w, #o],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<6x6x2xi8>, tensor<3x3x4x2xi8>) outs(%out : tensor<4x4x4xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<4x4x4xi32>
  return %r : tensor<4x4x4xi32>
}

// -----

// Unchanged: the usual orders, windows of one element, a pooling and a product.
// CHECK-LABEL: func.func @left_alone(
// CHECK-NOT: optimization_barrier
// CHECK-NOT: linalg.generic
func.func @left_alone(%x: tensor<1x3x6x6xf16>, %w: tensor<4x3x3x3xf16>, %out: tensor<1x4x4x4xf32>,
                      %one: tensor<4x1x1x3xf16>, %e: tensor<1x6x6x3xf16>, %all: tensor<1x6x6x4xf32>,
                      %window: tensor<3x3xf16>, %least: tensor<1x3x4x4xf16>, %a: tensor<3x5xf16>, %te: tensor<5x3xf16>,
                      %b: tensor<3x4xf16>, %c: tensor<5x4xf16>)
    -> (tensor<1x4x4x4xf32>, tensor<1x6x6x4xf32>, tensor<1x3x4x4xf16>, tensor<5x4xf16>) {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x3x6x6xf16>, tensor<4x3x3x3xf16>) outs(%out : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  %t = linalg.transpose ins(%x : tensor<1x3x6x6xf16>) outs(%e : tensor<1x6x6x3xf16>) permutation = [0, 2, 3, 1]
  %1 = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%t, %one : tensor<1x6x6x3xf16>, tensor<4x1x1x3xf16>) outs(%all : tensor<1x6x6x4xf32>) -> tensor<1x6x6x4xf32>
  %2 = linalg.pooling_nchw_max {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %window : tensor<1x3x6x6xf16>, tensor<3x3xf16>) outs(%least : tensor<1x3x4x4xf16>) -> tensor<1x3x4x4xf16>
  %ta = linalg.transpose ins(%a : tensor<3x5xf16>) outs(%te : tensor<5x3xf16>) permutation = [1, 0]
  %3 = linalg.matmul ins(%ta, %b : tensor<5x3xf16>, tensor<3x4xf16>) outs(%c : tensor<5x4xf16>) -> tensor<5x4xf16>
  return %0, %1, %2, %3 : tensor<1x4x4x4xf32>, tensor<1x6x6x4xf32>, tensor<1x3x4x4xf16>, tensor<5x4xf16>
}

// -----

// Regression: the width has a single window, so its axis is summed like channels, and groups are between the two axes.
// CHECK-LABEL: func.func @groups_between_what_is_summed(
// CHECK: %[[B:.*]] = util.optimization_barrier {qmlir.barrier_reason = "convolution-order"} {{.*}} : tensor<1x4x2x3x3xf16>
// CHECK: linalg.generic {{.*}} ins(%[[B]], %arg1
func.func @groups_between_what_is_summed(%x: tensor<1x4x3x2x3xf16>, %w: tensor<2x5x3x3x3xf16>,
                                         %out: tensor<1x2x1x2x5xf32>) -> tensor<1x2x1x2x5xf32> {
  %r = linalg.conv_2d_nhwgc_gfhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x3x2x3xf16>, tensor<2x5x3x3x3xf16>) outs(%out : tensor<1x2x1x2x5xf32>)
      -> tensor<1x2x1x2x5xf32>
  return %r : tensor<1x2x1x2x5xf32>
}
