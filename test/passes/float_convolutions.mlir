// RUN: qmlir-opt %s --pass-pipeline='qmlir-float-convolutions' | filecheck %s

// A product of filters by patches. Rows of the image stay contiguous in the patches. The initial value is added to it.
// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d0, d1 + d3)>
// CHECK-DAG: #[[STRIDED:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d0, d4 * 3 + d1 * 2, d5 * 2 + d2)>
// CHECK-DAG: #[[GROUPS:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d0, d1, d2 + d5, d3 + d6)>
// CHECK-LABEL: func.func @rows(
// CHECK: %[[PATCHES:.*]] = linalg.generic {indexing_maps = [#[[ROWS]], {{.*}} outs(%{{.*}} : tensor<80x3x1x100xf32>)
// CHECK: tensor.collapse_shape %[[PATCHES]] {{\[\[}}0, 1], [2, 3]] : tensor<80x3x1x100xf32> into tensor<240x100xf32>
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "patches"
// CHECK: linalg.generic {{.*}}["parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<32x240xf32>, tensor<240x100xf32>)
// CHECK: arith.addf %{{.*}}, %{{.*}} : f32
// CHECK-NOT: linalg.conv
func.func @rows(%x: tensor<1x80x102xf32>, %w: tensor<32x80x3xf32>, %bias: tensor<1x32x100xf32>) -> tensor<1x32x100xf32> {
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}
      ins(%x, %w : tensor<1x80x102xf32>, tensor<32x80x3xf32>) outs(%bias : tensor<1x32x100xf32>) -> tensor<1x32x100xf32>
  return %0 : tensor<1x32x100xf32>
}

// The number of images may be dynamic. The result is transposed so that the axis of images comes first again.
// CHECK-LABEL: func.func @images(
// CHECK: linalg.generic {indexing_maps = [#[[STRIDED]],
// CHECK: linalg.generic {{.*}} : tensor<8x36xf32>, tensor<36x?xf32>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<8x?x4x5xf32>) outs(%{{.*}} : tensor<?x8x4x5xf32>)
// CHECK-NOT: linalg.conv
func.func @images(%x: tensor<?x4x11x11xf32>, %w: tensor<8x4x3x3xf32>, %out: tensor<?x8x4x5xf32>) -> tensor<?x8x4x5xf32> {
  %zero = arith.constant 0.0 : f32
  %1 = linalg.fill ins(%zero : f32) outs(%out : tensor<?x8x4x5xf32>) -> tensor<?x8x4x5xf32>
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<[2, 1]> : tensor<2xi64>, strides = dense<[3, 2]> : tensor<2xi64>}
      ins(%x, %w : tensor<?x4x11x11xf32>, tensor<8x4x3x3xf32>) outs(%1 : tensor<?x8x4x5xf32>) -> tensor<?x8x4x5xf32>
  return %0 : tensor<?x8x4x5xf32>
}

// One product per group.
// CHECK-LABEL: func.func @groups(
// CHECK: linalg.generic {indexing_maps = [#[[GROUPS]],
// CHECK: linalg.generic {{.*}}["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<4x6x27xf32>, tensor<4x27x32xf32>)
// CHECK-NOT: linalg.conv
func.func @groups(%x: tensor<2x4x3x6x6xf32>, %w: tensor<4x6x3x3x3xf32>, %out: tensor<2x4x6x4x4xf32>) -> tensor<2x4x6x4x4xf32> {
  %0 = linalg.conv_2d_ngchw_gfchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x4x3x6x6xf32>, tensor<4x6x3x3x3xf32>) outs(%out : tensor<2x4x6x4x4xf32>) -> tensor<2x4x6x4x4xf32>
  return %0 : tensor<2x4x6x4x4xf32>
}

// Unchanged: IREE vectorises convolutions with a stride of one, and patches would be nine times the size of the image.
// CHECK-LABEL: func.func @neighbours(
// CHECK: linalg.conv_2d_nchw_fchw
func.func @neighbours(%x: tensor<1x4x10x10xf32>, %w: tensor<8x4x3x3xf32>, %out: tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32> {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x10x10xf32>, tensor<8x4x3x3xf32>) outs(%out : tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32>
  return %0 : tensor<1x8x8x8xf32>
}

// Unchanged: integers, for which there are kernels, and images of dynamic size, for which no patches are built.
// CHECK-LABEL: func.func @integers(
// CHECK: linalg.conv_1d_ncw_fcw
func.func @integers(%x: tensor<1x80x102xi8>, %w: tensor<32x80x3xi8>, %out: tensor<1x32x100xi32>) -> tensor<1x32x100xi32> {
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}
      ins(%x, %w : tensor<1x80x102xi8>, tensor<32x80x3xi8>) outs(%out : tensor<1x32x100xi32>) -> tensor<1x32x100xi32>
  return %0 : tensor<1x32x100xi32>
}

// CHECK-LABEL: func.func @dynamic(
// CHECK: linalg.conv_1d_ncw_fcw
func.func @dynamic(%x: tensor<1x80x?xf32>, %w: tensor<32x80x3xf32>, %out: tensor<1x32x?xf32>) -> tensor<1x32x?xf32> {
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}
      ins(%x, %w : tensor<1x80x?xf32>, tensor<32x80x3xf32>) outs(%out : tensor<1x32x?xf32>) -> tensor<1x32x?xf32>
  return %0 : tensor<1x32x?xf32>
}

// Patches of small windows are not much larger than the image. Larger windows stay, because IREE vectorises them.
// CHECK-LABEL: func.func @small_windows(
// CHECK-NOT: linalg.conv
// CHECK: linalg.generic {{.*}} : tensor<8x16xf32>, tensor<16x?xf32>)
// CHECK-LABEL: func.func @larger_windows(
// CHECK: linalg.conv_2d_nchw_fchw
func.func @small_windows(%x: tensor<?x4x11x11xf32>, %w: tensor<8x4x2x2xf32>, %out: tensor<?x8x10x10xf32>) -> tensor<?x8x10x10xf32> {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<?x4x11x11xf32>, tensor<8x4x2x2xf32>) outs(%out : tensor<?x8x10x10xf32>) -> tensor<?x8x10x10xf32>
  return %0 : tensor<?x8x10x10xf32>
}
func.func @larger_windows(%x: tensor<1x4x11x11xf32>, %w: tensor<8x4x2x3xf32>, %out: tensor<1x8x10x9xf32>) -> tensor<1x8x10x9xf32> {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x11x11xf32>, tensor<8x4x2x3xf32>) outs(%out : tensor<1x8x10x9xf32>) -> tensor<1x8x10x9xf32>
  return %0 : tensor<1x8x10x9xf32>
}
