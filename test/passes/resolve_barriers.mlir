// RUN: qmlir-opt %s --pass-pipeline='qmlir-resolve-barriers{target=cpu:x86-64-v3}' | filecheck %s --check-prefixes=CHECK,CPU
// RUN: qmlir-opt %s --pass-pipeline='qmlir-resolve-barriers{target=cuda:sm_80}' | filecheck %s --check-prefixes=CHECK,GPU
// RUN: qmlir-opt %s --pass-pipeline='qmlir-resolve-barriers{target=vulkan:ada}' | filecheck %s --check-prefixes=CHECK,GPU

// A table that loops read by index: only GPUs need it in a separate dispatch. If the barrier is dropped, its attributes
// move to the op that computes the tensor.
// CHECK-LABEL: func.func @indexed(
// CPU: %[[T:.*]] = tensor.insert {{.*}} {qmlir.row_of}
// CPU-NOT: util.optimization_barrier
// CPU: return %[[T]]
// GPU: tensor.insert
// GPU: util.optimization_barrier {{.*}}"indexed-reads"
// GPU: %[[T:.*]] = flow.tensor.tie_shape {{.*}} {qmlir.row_of}
// GPU: return %[[T]]
func.func @indexed(%t: tensor<?xi32>, %n: index) -> tensor<?xi32> {
  %c0 = arith.constant 0 : index
  %v = arith.constant 1 : i32
  %made = tensor.insert %v into %t[%c0] : tensor<?xi32>
  %0 = util.optimization_barrier {qmlir.barrier_reason = "indexed-reads"} %made : tensor<?xi32>
  %1 = "flow.tensor.tie_shape"(%0, %n) {qmlir.row_of} : (tensor<?xi32>, index) -> tensor<?xi32>
  return %1 : tensor<?xi32>
}

// Kept: a barrier whose reason applies to every target, and a barrier that qmlir did not insert.
// CHECK-LABEL: func.func @kept(
// CHECK: util.optimization_barrier
// CHECK: util.optimization_barrier
func.func @kept(%t: tensor<4xi32>) -> tensor<4xi32> {
  %0 = util.optimization_barrier {qmlir.barrier_reason = "converted-once"} %t : tensor<4xi32>
  %1 = util.optimization_barrier %0 : tensor<4xi32>
  return %1 : tensor<4xi32>
}
