// RUN: qmlir-opt %s --pass-pipeline=qmlir-store-shared | filecheck %s

#same = affine_map<(i) -> (i)>
#even = affine_map<(i) -> (i * 2)>

// A tensor that is read with strides and is also returned is computed in a separate dispatch.
// CHECK-LABEL: func.func @returned(
// CHECK: %[[POSITIVE:.*]] = linalg.generic
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "stored-shared"} %[[POSITIVE]]
// CHECK: linalg.generic {{.*}} ins(%[[STORED]]
// CHECK: return %{{.*}}, %[[POSITIVE]]
func.func @returned(%x: tensor<8xf32>, %e: tensor<8xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  %positive = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.absf %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %half = linalg.generic {indexing_maps = [#even, #same], iterator_types = ["parallel"]}
      ins(%positive : tensor<8xf32>) outs(%h : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %half, %positive : tensor<4xf32>, tensor<8xf32>
}

// Also if an elementwise op and a reshape are in between.
// CHECK-LABEL: func.func @behind_more(
// CHECK: tensor.collapse_shape
// CHECK: util.optimization_barrier
func.func @behind_more(%x: tensor<2x4xf32>, %e: tensor<2x4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x4xf32>) {
  %positive = linalg.map {math.absf} ins(%x : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>)
  %more = linalg.map {math.sqrt} ins(%positive : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>)
  %flat = tensor.collapse_shape %more [[0, 1]] : tensor<2x4xf32> into tensor<8xf32>
  %half = linalg.generic {indexing_maps = [#even, #same], iterator_types = ["parallel"]}
      ins(%flat : tensor<8xf32>) outs(%h : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %half, %positive : tensor<4xf32>, tensor<2x4xf32>
}

// A depthwise convolution by filters of one element is elementwise.
// CHECK-LABEL: func.func @single(
// CHECK: util.optimization_barrier
// CHECK: linalg.depthwise_conv_2d_nhwc_hwc
func.func @single(%x: tensor<1x4x4x3xf32>, %w: tensor<1x1x3xf32>, %e: tensor<1x4x4x3xf32>, %o: tensor<1x2x2x3xf32>) -> (tensor<1x2x2x3xf32>, tensor<1x4x4x3xf32>) {
  %positive = linalg.map {math.absf} ins(%x : tensor<1x4x4x3xf32>) outs(%e : tensor<1x4x4x3xf32>)
  %half = linalg.depthwise_conv_2d_nhwc_hwc {strides = dense<2> : vector<2xi64>}
      ins(%positive, %w : tensor<1x4x4x3xf32>, tensor<1x1x3xf32>) outs(%o : tensor<1x2x2x3xf32>) -> tensor<1x2x2x3xf32>
  return %half, %positive : tensor<1x2x2x3xf32>, tensor<1x4x4x3xf32>
}

// Unchanged: a tensor with one reader, and an argument, although another op reads all of it.
// CHECK-LABEL: func.func @one_reader(
// CHECK-NOT: barrier
// CHECK: return
func.func @one_reader(%x: tensor<8xf32>, %e: tensor<8xf32>, %h: tensor<4xf32>) -> tensor<4xf32> {
  %positive = linalg.map {math.absf} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>)
  %half = linalg.generic {indexing_maps = [#even, #same], iterator_types = ["parallel"]}
      ins(%positive : tensor<8xf32>) outs(%h : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %half : tensor<4xf32>
}

// CHECK-LABEL: func.func @argument(
// CHECK-NOT: barrier
// CHECK: return
func.func @argument(%x: tensor<8xf32>, %e: tensor<8xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  %all = linalg.map {math.absf} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>)
  %half = linalg.generic {indexing_maps = [#even, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%h : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %half, %all : tensor<4xf32>, tensor<8xf32>
}
