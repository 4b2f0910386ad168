// RUN: qmlir-opt %s --pass-pipeline=qmlir-guard-empty | filecheck %s

// The pass inserts its new functions at the start of the module, those of the last function first.
// Tensors that depend on constants only are computed before the branch, where IREE computes them once. A fill, or any
// other tensor that is larger than its constants, stays where it is read.
// CHECK-LABEL: func.func @weight(
// CHECK: %[[W:.*]] = call @weight__constants(%arg0) : (tensor<?x4xf32>) -> tensor<4xf32>
// CHECK: scf.if
// CHECK: func.call @weight__body(%{{.*}}, %[[W]])

// A dynamic axis: empty results of the right shape if it is 0, else the original function.
// CHECK-LABEL: func.func @dynamic(
// CHECK: %[[SIZE:.*]] = {{.*}}call @dynamic__shapes
// CHECK: %[[D:.*]] = tensor.dim
// CHECK: %[[EMPTY:.*]] = arith.cmpi eq, %[[D]]
// CHECK: cf.assert %{{.*}}, "axis 0 of arg0 is empty: on this target, a program whose results are not empty takes no
// CHECK: scf.if %[[EMPTY]] -> (tensor<?x4xf32>)
// CHECK: tensor.empty(%[[SIZE]])
// CHECK: } else {
// CHECK: func.call @dynamic__body
// CHECK: func.func private @dynamic__body(
func.func @dynamic(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = math.exp %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

func.func @weight(%x: tensor<?x4xf32> {qmlir.name = "x"}) -> tensor<?x4xf32> {
  %codes = arith.constant dense<[1, 2, 3, 4]> : tensor<4xi8>
  %e = tensor.empty() : tensor<4xf32>
  %weight = linalg.map ins(%codes : tensor<4xi8>) outs(%e : tensor<4xf32>) (%c: i8, %o: f32) {
    %d = arith.sitofp %c : i8 to f32
    linalg.yield %d : f32
  }
  %one = arith.constant 1.0 : f32
  %ones = linalg.fill ins(%one : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (j)>,
                     affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%x, %weight, %ones : tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<?x4xf32>) {
  ^bb0(%a: f32, %b: f32, %d: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    %f = arith.addf %c, %d : f32
    linalg.yield %f : f32
  } -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// Several results: an empty call is an error, because IREE refuses a return per branch, and confuses joined results.
// CHECK-LABEL: func.func @several(
// CHECK-DAG: %[[D:.*]] = tensor.dim %arg0
// CHECK: %[[THERE:.*]] = arith.cmpi ne, %[[D]]
// CHECK-NEXT: cf.assert %[[THERE]], "axis 0 of x is empty: on this target, programs with several results do not accept empty tensors
// CHECK-NOT: scf.if
// CHECK: math.exp
func.func @several(%x: tensor<?x4xf32> {qmlir.name = "x"}) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = math.exp %x : tensor<?x4xf32>
  %1 = math.sqrt %0 : tensor<?x4xf32>
  return %0, %1 : tensor<?x4xf32>, tensor<?x4xf32>
}

// Static axes: there is nothing to guard.
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

// A slice whose size the program counts: a count of 0 is an error.
// CHECK-LABEL: func.func @counted(
// CHECK: %[[SIZE:.*]] = arith.index_cast %{{.*}} : i64 to index
// CHECK: %[[THERE:.*]] = arith.cmpi ne, %[[SIZE]], %{{.*}} : index
// CHECK: cf.assert %[[THERE]], "the program has counted 0 elements: this target does not support empty tensors"
// CHECK: tensor.extract_slice %{{.*}}[0] [%[[SIZE]]] [1]
// CHECK-NOT: cf.assert
// CHECK: return
func.func @counted(%x: tensor<4xf32>, %count: tensor<i64>) -> tensor<?xf32> {
  %n = tensor.extract %count[] : tensor<i64>
  %size = arith.index_cast %n : i64 to index
  %0 = tensor.extract_slice %x[0] [%size] [1] : tensor<4xf32> to tensor<?xf32>
  return %0 : tensor<?xf32>
}

// Private functions are unchanged: only guarded functions call them.
// CHECK-LABEL: func.func private @inner(
// CHECK-NEXT: math.exp
func.func private @inner(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = math.exp %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
