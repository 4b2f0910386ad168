// RUN: qmlir-opt %s --pass-pipeline=qmlir-guard-empty | filecheck %s

// The functions that are made come first, the last one before the others. Of several results, what is chosen is a
// buffer view: of tensors, IREE confuses the offsets in an allocation that they share.
// CHECK-LABEL: func.func @several(
// CHECK: %[[SIZES:.*]]:2 = {{.*}}call @several__shapes
// CHECK: %[[CHOSEN:.*]]:2 = scf.if {{.*}} -> (!hal.buffer_view, !hal.buffer_view)
// CHECK: hal.tensor.export
// CHECK: } else {
// CHECK: func.call @several__body
// CHECK: hal.tensor.export
// CHECK: hal.tensor.import %[[CHOSEN]]#0 : !hal.buffer_view -> tensor<?x4xf32>{%[[SIZES]]#0}

// A dynamic axis: empty results of the right shape when it is 0, else the function as it was.
// CHECK-LABEL: func.func @dynamic(
// CHECK: %[[SIZE:.*]] = {{.*}}call @dynamic__shapes
// CHECK: %[[D:.*]] = tensor.dim
// CHECK: %[[EMPTY:.*]] = arith.cmpi eq, %[[D]]
// CHECK: scf.if %[[EMPTY]] -> (tensor<?x4xf32>)
// CHECK: tensor.empty(%[[SIZE]])
// CHECK: } else {
// CHECK: func.call @dynamic__body
// CHECK: func.func private @dynamic__body(
func.func @dynamic(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = math.exp %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

func.func @several(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = math.exp %x : tensor<?x4xf32>
  %1 = math.sqrt %0 : tensor<?x4xf32>
  return %0, %1 : tensor<?x4xf32>, tensor<?x4xf32>
}

// Static axes: nothing to guard.
// CHECK-LABEL: func.func @static(
// CHECK-NEXT: math.exp
// CHECK-NEXT: return
func.func @static(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = math.exp %x : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// A result that is empty by its type needs no computation.
// CHECK-LABEL: func.func @nothing(
// CHECK-NOT: math.exp
// CHECK: tensor.empty() : tensor<0x4xf32>
func.func @nothing(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {
  %0 = math.exp %x : tensor<0x4xf32>
  return %0 : tensor<0x4xf32>
}

// Private functions are called from guarded ones only.
// CHECK-LABEL: func.func private @inner(
// CHECK-NEXT: math.exp
func.func private @inner(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = math.exp %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
