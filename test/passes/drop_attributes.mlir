// RUN: qmlir-opt %s --pass-pipeline=qmlir-drop-attributes | filecheck %s

// Our own attributes are dropped, others stay.
// CHECK-LABEL: func.func @lowered
// CHECK: arith.addi %arg0, %arg0 {other.note = 1 : i64} : i32
func.func @lowered(%x: i32) -> i32 {
  %0 = arith.addi %x, %x {qmlir.lhs_magnitude = 3 : i64, other.note = 1 : i64} : i32
  return %0 : i32
}
