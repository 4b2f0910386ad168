// RUN: qmlir-opt %s --pass-pipeline=qmlir-crop-windows | filecheck %s

// A single window of 3 x 3 in an image of 4 x 4.
// CHECK-LABEL: func.func @single_window(
// CHECK-SAME: %[[X:.*]]: tensor<1x4x4x2xf32>
// CHECK: %[[READ:.*]] = tensor.extract_slice %[[X]][0, 0, 0, 0] [1, 3, 3, 2] [1, 1, 1, 1]
// CHECK: linalg.conv_2d_nhwc_hwcf {{.*}} ins(%[[READ]],
func.func @single_window(%x: tensor<1x4x4x2xf32>, %w: tensor<3x3x2x3xf32>, %out: tensor<1x1x1x3xf32>) -> tensor<1x1x1x3xf32> {
  %0 = linalg.conv_2d_nhwc_hwcf {strides = dense<2> : tensor<2xi64>}
    ins(%x, %w : tensor<1x4x4x2xf32>, tensor<3x3x2x3xf32>) outs(%out : tensor<1x1x1x3xf32>) -> tensor<1x1x1x3xf32>
  return %0 : tensor<1x1x1x3xf32>
}

// Padding that no window reads is left out.
// CHECK-LABEL: func.func @padded(
// CHECK: tensor.pad {{.*}} low[0, 1, 1, 0] high[0, 0, 0, 0]
// CHECK-NOT: extract_slice
// CHECK: return
func.func @padded(%x: tensor<1x2x2x2xi8>, %w: tensor<3x3x2x3xi8>, %out: tensor<1x1x1x3xi32>) -> tensor<1x1x1x3xi32> {
  %zero = arith.constant 0 : i8
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : i8
  } : tensor<1x2x2x2xi8> to tensor<1x4x4x2xi8>
  %0 = linalg.conv_2d_nhwc_hwcf {strides = dense<2> : tensor<2xi64>}
    ins(%p, %w : tensor<1x4x4x2xi8>, tensor<3x3x2x3xi8>) outs(%out : tensor<1x1x1x3xi32>) -> tensor<1x1x1x3xi32>
  return %0 : tensor<1x1x1x3xi32>
}

// A single window along the rows only: the columns are all read, so only the rows are cropped.
// CHECK-LABEL: func.func @rows(
// CHECK: tensor.extract_slice {{.*}} [1, 3, 5, 2]
func.func @rows(%x: tensor<1x4x5x2xf32>, %w: tensor<3x3x2x3xf32>, %out: tensor<1x1x3x3xf32>) -> tensor<1x1x3x3xf32> {
  %0 = linalg.conv_2d_nhwc_hwcf
    ins(%x, %w : tensor<1x4x5x2xf32>, tensor<3x3x2x3xf32>) outs(%out : tensor<1x1x3x3xf32>) -> tensor<1x1x3x3xf32>
  return %0 : tensor<1x1x3x3xf32>
}

// Windows of one element that do not read the image's last row and column.
// CHECK-LABEL: func.func @elements(
// CHECK: tensor.extract_slice {{.*}} [1, 3, 3, 2]
func.func @elements(%x: tensor<1x4x4x2xf32>, %w: tensor<1x1x2x3xf32>, %out: tensor<1x3x3x3xf32>) -> tensor<1x3x3x3xf32> {
  %0 = linalg.conv_2d_nhwc_hwcf
    ins(%x, %w : tensor<1x4x4x2xf32>, tensor<1x1x2x3xf32>) outs(%out : tensor<1x3x3x3xf32>) -> tensor<1x3x3x3xf32>
  return %0 : tensor<1x3x3x3xf32>
}

// A pooling, whose window operand is only a shape.
// CHECK-LABEL: func.func @pooling(
// CHECK: tensor.extract_slice {{.*}} [1, 3, 3, 2]
func.func @pooling(%x: tensor<1x4x4x2xf32>, %w: tensor<3x3xf32>, %out: tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32> {
  %0 = linalg.pooling_nhwc_sum {strides = dense<2> : tensor<2xi64>}
    ins(%x, %w : tensor<1x4x4x2xf32>, tensor<3x3xf32>) outs(%out : tensor<1x1x1x2xf32>) -> tensor<1x1x1x2xf32>
  return %0 : tensor<1x1x1x2xf32>
}

// Unchanged: windows of one element with a stride, several windows, and a single window that reads the whole image.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT: extract_slice
// CHECK: return
func.func @stays(%x: tensor<1x4x4x2xf32>, %w: tensor<1x1x2x3xf32>, %v: tensor<2x2x2x3xf32>, %o: tensor<1x2x2x3xf32>,
    %u: tensor<4x4x2x3xf32>, %p: tensor<1x1x1x3xf32>) -> (tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>, tensor<1x1x1x3xf32>) {
  %0 = linalg.conv_2d_nhwc_hwcf {strides = dense<2> : tensor<2xi64>}
    ins(%x, %w : tensor<1x4x4x2xf32>, tensor<1x1x2x3xf32>) outs(%o : tensor<1x2x2x3xf32>) -> tensor<1x2x2x3xf32>
  %1 = linalg.conv_2d_nhwc_hwcf
    ins(%x, %v : tensor<1x4x4x2xf32>, tensor<2x2x2x3xf32>) outs(%o : tensor<1x2x2x3xf32>) -> tensor<1x2x2x3xf32>
  %2 = linalg.conv_2d_nhwc_hwcf
    ins(%x, %u : tensor<1x4x4x2xf32>, tensor<4x4x2x3xf32>) outs(%p : tensor<1x1x1x3xf32>) -> tensor<1x1x1x3xf32>
  return %0, %1, %2 : tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>, tensor<1x1x1x3xf32>
}
