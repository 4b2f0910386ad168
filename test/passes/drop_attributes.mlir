// RUN: qmlir-opt %s --pass-pipeline=qmlir-drop-attributes | filecheck %s

// qmlir's own attributes are dropped, others stay.
// CHECK-LABEL: func.func @lowered
// CHECK: arith.addi %arg0, %arg0 {other.note = 1 : i64} : i32
func.func @lowered(%x: i32) -> i32 {
  %0 = arith.addi %x, %x {qmlir.lhs_magnitude = 3 : i64, other.note = 1 : i64} : i32
  return %0 : i32
}

// The reason of a fusion barrier stays: it decides whether the barrier is removed once IREE has formed dispatches.
// CHECK-LABEL: func.func @apart
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "patches"} %arg0
func.func @apart(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = util.optimization_barrier {qmlir.barrier_reason = "patches", qmlir.group = 3 : i64} %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
