// RUN: qmlir-opt %s --split-input-file --verify-diagnostics --pass-pipeline=qmlir-guard | filecheck %s

// A qmlir op that was not lowered would crash IREE.
func.func @left_over(%x: tensor<4xi8>) -> tensor<8xi8> {
  // expected-error@+1 {{'qmlir.unpack' was not lowered and is unknown to IREE}}
  %0 = "qmlir.unpack"(%x) {dtype = "i4"} : (tensor<4xi8>) -> tensor<8xi8>
  return %0 : tensor<8xi8>
}

// -----

// So would any other op that IREE has not registered; each of them is reported.
func.func @foreign() {
  // expected-error@+1 {{'other.op' was not lowered and is unknown to IREE}}
  "other.op"() : () -> ()
  // expected-error@+1 {{'third.op' was not lowered and is unknown to IREE}}
  "third.op"() : () -> ()
  return
}

// -----

// A product that sums over an axis of size 0 is replaced by its initial value.
// CHECK-LABEL: func.func @empty_sum(
// CHECK-SAME: %[[INIT:[^ ]*]]: tensor<5x7xf32>)
// CHECK-NEXT: return %[[INIT]]
func.func @empty_sum(%x: tensor<5x0xf32>, %w: tensor<0x7xf32>, %init: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<5x0xf32>, tensor<0x7xf32>) outs(%init : tensor<5x7xf32>) -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}

// -----

// A product without result elements stays.
// CHECK-LABEL: func.func @empty(
// CHECK: linalg.matmul
func.func @empty(%x: tensor<0x3xf32>, %w: tensor<3x7xf32>, %init: tensor<0x7xf32>) -> tensor<0x7xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<0x3xf32>, tensor<3x7xf32>) outs(%init : tensor<0x7xf32>) -> tensor<0x7xf32>
  return %0 : tensor<0x7xf32>
}
