// RUN: qmlir-opt --split-input-file --pass-pipeline='qmlir-order-results' %s | filecheck %s

// The loops of a convolution are put in the order of its result's axes.
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d1 + d4, d2 * 2 + d5)>
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d4, d5)>
// CHECK-DAG: #[[O:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @channels_first(
// CHECK: linalg.generic {indexing_maps = [#[[X]], #[[W]], #[[O]]]
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
// CHECK-SAME: ins(%arg0, %arg1 : tensor<2x6x9xf16>, tensor<4x2x3x3xf16>)
#x = affine_map<(h, w, f, c, r, s) -> (c, h + r, w * 2 + s)>
#w = affine_map<(h, w, f, c, r, s) -> (f, c, r, s)>
#o = affine_map<(h, w, f, c, r, s) -> (f, h, w)>
func.func @channels_first(%x: tensor<2x6x9xf16>, %w: tensor<4x2x3x3xf16>, %out: tensor<4x4x4xf32>) -> tensor<4x4x4xf32> {
  %r = linalg.generic {indexing_maps = [#x, #w, #o],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x6x9xf16>, tensor<4x2x3x3xf16>) outs(%out : tensor<4x4x4xf32>) {
  ^bb0(%a: f16, %b: f16, %acc: f32):
    %1 = arith.extf %a : f16 to f32
    %2 = arith.extf %b : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x4x4xf32>
  return %r : tensor<4x4x4xf32>
}

// -----

// The operands of a product are exchanged if its result has the axes of the right operand first.
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @columns_first(
// CHECK: linalg.generic {indexing_maps = [#[[W]], #[[X]], {{.*}} ins(%arg1, %arg0 : tensor<8x3xbf16>, tensor<3x5xbf16>)
#x = affine_map<(n, m, k) -> (k, m)>
#w = affine_map<(n, m, k) -> (n, k)>
#o = affine_map<(n, m, k) -> (n, m)>
func.func @columns_first(%x: tensor<3x5xbf16>, %w: tensor<8x3xbf16>, %out: tensor<8x5xf32>) -> tensor<8x5xf32> {
  %0 = linalg.generic {indexing_maps = [#x, #w, #o], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<3x5xbf16>, tensor<8x3xbf16>) outs(%out : tensor<8x5xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %1 = arith.extf %a : bf16 to f32
    %2 = arith.extf %b : bf16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<8x5xf32>
  return %0 : tensor<8x5xf32>
}

// -----

// Unchanged: a batch axis in front, and convolutions whose loops have the order of their results' axes.
// CHECK-LABEL: func.func @left_alone(
// CHECK: linalg.batch_matmul
// CHECK: linalg.conv_2d_nhwc_fhwc
// CHECK: linalg.conv_2d_nchw_fchw
func.func @left_alone(%a: tensor<2x5x3xf16>, %b: tensor<2x3x4xf16>, %c: tensor<2x5x4xf32>, %x: tensor<1x7x6x3xf16>,
                      %w: tensor<6x3x3x3xf16>, %o: tensor<1x5x4x6xf32>, %y: tensor<1x3x7x6xf16>,
                      %v: tensor<6x3x3x3xf16>, %p: tensor<1x6x5x4xf32>)
    -> (tensor<2x5x4xf32>, tensor<1x5x4x6xf32>, tensor<1x6x5x4xf32>) {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<2x5x3xf16>, tensor<2x3x4xf16>) outs(%c : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
  %1 = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x7x6x3xf16>, tensor<6x3x3x3xf16>) outs(%o : tensor<1x5x4x6xf32>) -> tensor<1x5x4x6xf32>
  %2 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%y, %v : tensor<1x3x7x6xf16>, tensor<6x3x3x3xf16>) outs(%p : tensor<1x6x5x4xf32>) -> tensor<1x6x5x4xf32>
  return %0, %1, %2 : tensor<2x5x4xf32>, tensor<1x5x4x6xf32>, tensor<1x6x5x4xf32>
}
