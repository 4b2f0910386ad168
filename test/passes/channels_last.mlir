// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-channels-last{target=cpu:x86-64-v4}' | filecheck %s --check-prefixes=CHECK,CPU
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-channels-last{target=cpu:x86-64}' | filecheck %s --check-prefixes=CHECK,OLD
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-channels-last{target=cuda:sm_80}' | filecheck %s --check-prefixes=CHECK,GPU

// Padding stays in front of the convolution, and a bias is added behind it, where a kernel can fuse both.
// CHECK-LABEL: func.func @padded(
// CPU: %[[X:.*]] = linalg.transpose ins(%{{.*}} : tensor<1x4x9x9xf32>) {{.*}} permutation = [0, 2, 3, 1]
// CPU: %[[P:.*]] = tensor.pad %[[X]] low[0, 1, 2, 0] high[0, 0, 1, 0]
// CPU: tensor<1x9x9x4xf32> to tensor<1x10x12x4xf32>
// CPU: %[[W:.*]] = linalg.transpose ins(%{{.*}} : tensor<5x4x3x3xf32>) {{.*}} permutation = [0, 2, 3, 1]
// CPU: %[[Y:.*]] = linalg.conv_2d_nhwc_fhwc {{.*}} ins(%[[P]], %[[W]]
// CPU: linalg.generic {{.*}} ins(%[[Y]], %{{.*}} : tensor<1x8x10x5xf32>, tensor<5xf32>)
// CPU: arith.addf
// CPU: linalg.transpose {{.*}} permutation = [0, 3, 1, 2]
// OLD: linalg.conv_2d_nchw_fchw
// GPU: linalg.conv_2d_nchw_fchw
func.func @padded(%x: tensor<1x4x9x9xf32>) -> tensor<1x5x8x10xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<2.0> : tensor<5x4x3x3xf32>
  %b = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>
  %e = tensor.empty() : tensor<1x5x8x10xf32>
  %init = linalg.broadcast ins(%b : tensor<5xf32>) outs(%e : tensor<1x5x8x10xf32>) dimensions = [0, 2, 3]
  %p = tensor.pad %x low[0, 0, 1, 2] high[0, 0, 0, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  } : tensor<1x4x9x9xf32> to tensor<1x4x10x12xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%p, %w : tensor<1x4x10x12xf32>, tensor<5x4x3x3xf32>) outs(%init : tensor<1x5x8x10xf32>) -> tensor<1x5x8x10xf32>
  return %y : tensor<1x5x8x10xf32>
}

// -----

// Ops between two convolutions are converted to channels last as well: a clamp, padding, a pooling, a slice of the
// channels, and a concatenation of two images. The sum over pixels reads images with channels last.
// CHECK-LABEL: func.func @between(
// CPU: linalg.transpose {{.*}} permutation = [0, 2, 3, 1]
// CPU: linalg.conv_2d_nhwc_fhwc
// CPU: linalg.generic {{.*}}["parallel", "parallel", "parallel", "parallel"]} ins(%{{.*}} : tensor<?x8x8x6xf32>)
// CPU: tensor.pad {{.*}} low[0, 1, 1, 0] high[0, 0, 0, 0]
// CPU: linalg.pooling_nhwc_max {{.*}} : tensor<?x9x9x6xf32>
// CPU: tensor.extract_slice {{.*}}[0, 0, 0, 2] [%{{.*}}, 4, 4, 4] [1, 1, 1, 1]
// CPU: tensor.concat dim(3) {{.*}} -> tensor<?x4x4x8xf32>
// CPU: linalg.depthwise_conv_2d_nhwc_hwc {{.*}} : tensor<?x4x4x8xf32>, tensor<3x3x8xf32>)
// CPU: linalg.generic {{.*}}["parallel", "reduction", "reduction", "parallel"]} ins(%{{.*}} : tensor<?x2x2x8xf32>)
// CPU-NOT: permutation = [0, 3, 1, 2]
// GPU: linalg.depthwise_conv_2d_nchw_chw
#same = affine_map<(n, c, h, w) -> (n, c, h, w)>
#channel = affine_map<(n, c, h, w) -> (n, c)>
func.func @between(%x: tensor<?x3x8x8xf32>, %sizes: tensor<?x8xf32>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<2.0> : tensor<6x3x1x1xf32>
  %d = arith.constant dense<3.0> : tensor<8x3x3xf32>
  %e = tensor.empty(%n) : tensor<?x6x8x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6x8x8xf32>) -> tensor<?x6x8x8xf32>
  %y = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<?x3x8x8xf32>, tensor<6x3x1x1xf32>) outs(%init : tensor<?x6x8x8xf32>) -> tensor<?x6x8x8xf32>
  %r = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%y : tensor<?x6x8x8xf32>) outs(%e : tensor<?x6x8x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<?x6x8x8xf32>
  %p = tensor.pad %r low[0, 0, 1, 1] high[0, 0, 0, 0] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  } : tensor<?x6x8x8xf32> to tensor<?x6x9x9xf32>
  %window = tensor.empty() : tensor<2x2xf32>
  %f = tensor.empty(%n) : tensor<?x6x4x4xf32>
  %start = linalg.fill ins(%zero : f32) outs(%f : tensor<?x6x4x4xf32>) -> tensor<?x6x4x4xf32>
  %q = linalg.pooling_nchw_max {strides = dense<2> : tensor<2xi64>} ins(%p, %window : tensor<?x6x9x9xf32>, tensor<2x2xf32>) outs(%start : tensor<?x6x4x4xf32>) -> tensor<?x6x4x4xf32>
  %s = tensor.extract_slice %q[0, 2, 0, 0] [%n, 4, 4, 4] [1, 1, 1, 1] : tensor<?x6x4x4xf32> to tensor<?x4x4x4xf32>
  %c = tensor.concat dim(1) %s, %s : (tensor<?x4x4x4xf32>, tensor<?x4x4x4xf32>) -> tensor<?x8x4x4xf32>
  %g = tensor.empty(%n) : tensor<?x8x2x2xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%g : tensor<?x8x2x2xf32>) -> tensor<?x8x2x2xf32>
  %t = linalg.depthwise_conv_2d_nchw_chw ins(%c, %d : tensor<?x8x4x4xf32>, tensor<8x3x3xf32>) outs(%zeros : tensor<?x8x2x2xf32>) -> tensor<?x8x2x2xf32>
  %sum = linalg.generic {indexing_maps = [#same, #channel], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%t : tensor<?x8x2x2xf32>) outs(%sizes : tensor<?x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.addf %in, %out : f32
    linalg.yield %a : f32
  } -> tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

// -----

// If the model itself transposes the channels to the end, its result is returned without a transpose.
// CHECK-LABEL: func.func @own_transpose(
// CPU: %[[Y:.*]] = linalg.depthwise_conv_2d_nhwc_hwc
// CPU: return %[[Y]]
func.func @own_transpose(%x: tensor<1x4x9x9xf32>) -> tensor<1x7x7x4xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<2.0> : tensor<4x3x3xf32>
  %e = tensor.empty() : tensor<1x4x7x7xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  %y = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x4x9x9xf32>, tensor<4x3x3xf32>) outs(%init : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  %f = tensor.empty() : tensor<1x7x7x4xf32>
  %t = linalg.transpose ins(%y : tensor<1x4x7x7xf32>) outs(%f : tensor<1x7x7x4xf32>) permutation = [0, 2, 3, 1]
  return %t : tensor<1x7x7x4xf32>
}

// -----

// An op that reads the indices of its loops (`linalg.index`) still reads images with channels first.
// CHECK-LABEL: func.func @by_index(
// CPU: %[[Y:.*]] = linalg.transpose {{.*}} permutation = [0, 3, 1, 2]
// CPU: linalg.generic {{.*}} ins(%[[Y]] : tensor<1x4x7x7xf32>)
#id = affine_map<(n, c, h, w) -> (n, c, h, w)>
func.func @by_index(%x: tensor<1x4x9x9xf32>) -> tensor<1x4x7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<2.0> : tensor<4x3x3xf32>
  %e = tensor.empty() : tensor<1x4x7x7xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  %y = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x4x9x9xf32>, tensor<4x3x3xf32>) outs(%init : tensor<1x4x7x7xf32>) -> tensor<1x4x7x7xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%y : tensor<1x4x7x7xf32>) outs(%e : tensor<1x4x7x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %k = arith.sitofp %j : i32 to f32
    %a = arith.addf %in, %k : f32
    linalg.yield %a : f32
  } -> tensor<1x4x7x7xf32>
  return %z : tensor<1x4x7x7xf32>
}

// -----

// A bf16 convolution is converted whether its filter is constant or not.
// CHECK-LABEL: func.func @short(
// CPU: linalg.conv_2d_nhwc_fhwc {{.*}} : tensor<1x9x9x4xbf16>, tensor<5x3x3x4xbf16>)
// CPU: arith.addf {{.*}} : f32
// OLD: linalg.conv_2d_nhwc_fhwc
// GPU: linalg.conv_2d_nchw_fchw
func.func @short(%x: tensor<1x4x9x9xbf16>, %w: tensor<5x4x3x3xbf16>, %b: tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32> {
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x9x9xbf16>, tensor<5x4x3x3xbf16>) outs(%b : tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32>
  return %y : tensor<1x5x7x7xf32>
}

// -----

// An f32 filter that is an argument would be packed into panels in every call, so the convolution stays.
// CHECK-LABEL: func.func @of_an_argument(
// CHECK: linalg.conv_2d_nchw_fchw
func.func @of_an_argument(%x: tensor<1x4x9x9xf32>, %w: tensor<5x4x3x3xf32>, %b: tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32> {
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x9x9xf32>, tensor<5x4x3x3xf32>) outs(%b : tensor<1x5x7x7xf32>) -> tensor<1x5x7x7xf32>
  return %y : tensor<1x5x7x7xf32>
}

// -----

// Images of dynamic height stay, and so does a bf16 convolution whose patches would take 576 MiB (the limit: 256 MiB).
// CHECK-LABEL: func.func @dynamic(
// CHECK: linalg.depthwise_conv_2d_nchw_chw
// CHECK-LABEL: func.func @large(
// CHECK: linalg.conv_2d_nchw_fchw
func.func @dynamic(%x: tensor<1x4x?x9xf32>, %b: tensor<1x4x?x7xf32>) -> tensor<1x4x?x7xf32> {
  %w = arith.constant dense<2.0> : tensor<4x3x3xf32>
  %y = linalg.depthwise_conv_2d_nchw_chw ins(%x, %w : tensor<1x4x?x9xf32>, tensor<4x3x3xf32>) outs(%b : tensor<1x4x?x7xf32>) -> tensor<1x4x?x7xf32>
  return %y : tensor<1x4x?x7xf32>
}
func.func @large(%x: tensor<?x128x514x514xbf16>, %w: tensor<5x128x3x3xbf16>, %b: tensor<?x5x512x512xf32>) -> tensor<?x5x512x512xf32> {
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<?x128x514x514xbf16>, tensor<5x128x3x3xbf16>) outs(%b : tensor<?x5x512x512xf32>) -> tensor<?x5x512x512xf32>
  return %y : tensor<?x5x512x512xf32>
}
