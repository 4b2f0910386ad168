// RUN: qmlir-opt %s --pass-pipeline=qmlir-store-slices | filecheck %s

// A slice of the last axis that begins between two vectors of 16 bytes is copied in a separate dispatch.
// CHECK-LABEL: func.func @part(
// CHECK: %[[PART:.*]] = tensor.extract_slice %{{.*}}[0, 3] [8, 4] [1, 1]
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "between-vectors"} %[[PART]]
// CHECK: return %[[STORED]]
func.func @part(%x: tensor<8x8xf32>) -> tensor<8x4xf32> {
  %0 = tensor.extract_slice %x[0, 3] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// The offset, eight elements of i8, is half a vector; the number of rows is dynamic.
// CHECK-LABEL: func.func @bytes(
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "between-vectors"}
// CHECK: flow.tensor.tie_shape
func.func @bytes(%x: tensor<?x32xi8>, %m: index) -> tensor<?x16xi8> {
  %0 = tensor.extract_slice %x[0, 8] [%m, 16] [1, 1] : tensor<?x32xi8> to tensor<?x16xi8>
  return %0 : tensor<?x16xi8>
}

// A tensor that is padded in front by less than a vector is stored first.
// CHECK-LABEL: func.func @padded(
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "between-vectors"} %{{.*}} : tensor<8x4xf32>
// CHECK: tensor.pad %[[STORED]] low[0, 1] high[0, 3]
func.func @padded(%x: tensor<8x4xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = tensor.pad %x low[0, 1] high[0, 3] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<8x4xf32> to tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// Unchanged: offsets of whole vectors, slices of other axes, axes of odd size, and single columns.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: barrier
// CHECK: return
func.func @others(%x: tensor<8x8xf32>, %y: tensor<8x7xf32>)
    -> (tensor<8x4xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<8x1xf32>) {
  %0 = tensor.extract_slice %x[0, 4] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %1 = tensor.extract_slice %x[3, 0] [4, 8] [1, 1] : tensor<8x8xf32> to tensor<4x8xf32>
  %2 = tensor.extract_slice %y[0, 3] [8, 4] [1, 1] : tensor<8x7xf32> to tensor<8x4xf32>
  %3 = tensor.extract_slice %x[0, 3] [8, 1] [1, 1] : tensor<8x8xf32> to tensor<8x1xf32>
  return %0, %1, %2, %3 : tensor<8x4xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<8x1xf32>
}
