// RUN: qmlir-opt %s --pass-pipeline=qmlir-own-destinations | filecheck %s

#id = affine_map<(i) -> (i)>

// Indices that depend on nothing but a size are copied, because IREE computes equal ones once. A tensor that the sort
// alone reads stays.
// CHECK-LABEL: func.func @indices(
// CHECK: %[[INDICES:.*]] = linalg.generic
// CHECK: %[[ZERO:.*]] = util.optimization_barrier {{.*}} : i64
// CHECK: %[[OWN:.*]] = linalg.generic {{.*}}ins(%[[INDICES]] : tensor<?xi64>)
// CHECK: arith.addi {{.*}}%[[ZERO]]
// The sorted keys have no reader, but are stored nevertheless: the fusion barrier is their reader.
// CHECK: %[[SORTED:.*]]:2 = iree_linalg_ext.sort dimension(0) outs(%arg0, %[[OWN]] :
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "sorted"} %[[SORTED]]#0
func.func @indices(%x: tensor<?xf32>) -> tensor<?xi64> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xi64>
  %indices = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%out: i64):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i64
    linalg.yield %j : i64
  } -> tensor<?xi64>
  %0:2 = iree_linalg_ext.sort dimension(0) outs(%x, %indices : tensor<?xf32>, tensor<?xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<?xf32>, tensor<?xi64>
  return %0#1 : tensor<?xi64>
}

// A second reader of the same memory, through a reshape: the destination is copied. Floats are copied as bits.
// CHECK-LABEL: func.func @reader(
// CHECK: %[[OWN:.*]] = linalg.generic
// CHECK: arith.bitcast {{.*}} : f32 to i32
// CHECK: iree_linalg_ext.sort dimension(0) outs(%[[OWN]] :
func.func @reader(%x: tensor<2x4xf32>) -> (tensor<8xf32>, tensor<2x4xf32>) {
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<2x4xf32> into tensor<8xf32>
  %0 = iree_linalg_ext.sort dimension(0) outs(%flat : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<8xf32>
  return %0, %x : tensor<8xf32>, tensor<2x4xf32>
}

// A `tensor.empty` is not copied: each of its uses gets memory of its own.
// CHECK-LABEL: func.func @empty(
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @empty(%x: tensor<4xi64>, %at: tensor<4x1xi32>) -> (tensor<4xi64>, tensor<4xi64>) {
  %e = tensor.empty() : tensor<4xi64>
  %0 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%x, %at : tensor<4xi64>, tensor<4x1xi32>)
      outs(%e : tensor<4xi64>) {
  ^bb0(%new: i64, %old: i64):
    iree_linalg_ext.yield %new : i64
  } -> tensor<4xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%0, %at : tensor<4xi64>, tensor<4x1xi32>)
      outs(%e : tensor<4xi64>) {
  ^bb0(%new: i64, %old: i64):
    iree_linalg_ext.yield %new : i64
  } -> tensor<4xi64>
  return %0, %1 : tensor<4xi64>, tensor<4xi64>
}

// A fill that a scan reads is computed in a separate dispatch; the destination that the scan overwrites is unchanged.
// CHECK-LABEL: func.func @filled(
// CHECK: %[[ONES:.*]] = linalg.fill ins(%{{.*}} : i32) outs(%{{.*}} : tensor<?xi32>)
// CHECK: %[[BARRIER:.*]] = util.optimization_barrier {qmlir.barrier_reason = "filled"} %[[ONES]]
// CHECK: %[[MADE:.*]] = flow.tensor.tie_shape %[[BARRIER]]
// CHECK: iree_linalg_ext.scan dimension(0) inclusive(true) ins(%[[MADE]] : tensor<?xi32>)
func.func @filled(%n: index, %out: tensor<?xi32>, %last: tensor<i32>) -> tensor<?xi32> {
  %one = arith.constant 1 : i32
  %e = tensor.empty(%n) : tensor<?xi32>
  %ones = linalg.fill ins(%one : i32) outs(%e : tensor<?xi32>) -> tensor<?xi32>
  %0:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%ones : tensor<?xi32>) outs(%out, %last : tensor<?xi32>, tensor<i32>) {
  ^bb0(%a: i32, %b: i32):
    %s = arith.addi %a, %b : i32
    iree_linalg_ext.yield %s : i32
  } -> tensor<?xi32>, tensor<i32>
  return %0#0 : tensor<?xi32>
}
