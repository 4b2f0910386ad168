// RUN: qmlir-opt %s --pass-pipeline=qmlir-store-broadcasts | filecheck %s

#row = affine_map<(m, k) -> (k)>
#mk = affine_map<(m, k) -> (m, k)>

// A left operand of equal rows: if IREE fuses it, the result's axis of rows is in no operand.
// CHECK-LABEL: func.func @rows(
// CHECK: %[[ROWS:.*]] = linalg.generic
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "stored-broadcast"} %[[ROWS]]
// CHECK: linalg.matmul ins(%[[STORED]],
func.func @rows(%x: tensor<5xf32>, %w: tensor<5x3xf32>, %out: tensor<8x3xf32>) -> tensor<8x3xf32> {
  %e = tensor.empty() : tensor<8x5xf32>
  %rows = linalg.generic {indexing_maps = [#row, #mk], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<5xf32>) outs(%e : tensor<8x5xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<8x5xf32>
  %0 = linalg.matmul ins(%rows, %w : tensor<8x5xf32>, tensor<5x3xf32>) outs(%out : tensor<8x3xf32>) -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}

// A right operand of equal columns, by a named op (`linalg.broadcast`) with an elementwise op behind it.
// CHECK-LABEL: func.func @columns(
// CHECK: util.optimization_barrier
func.func @columns(%x: tensor<8x5xf32>, %w: tensor<5xf32>, %out: tensor<8x3xf32>) -> tensor<8x3xf32> {
  %e = tensor.empty() : tensor<5x3xf32>
  %columns = linalg.broadcast ins(%w : tensor<5xf32>) outs(%e : tensor<5x3xf32>) dimensions = [1]
  %more = linalg.generic {indexing_maps = [#mk, #mk], iterator_types = ["parallel", "parallel"]}
      ins(%columns : tensor<5x3xf32>) outs(%e : tensor<5x3xf32>) {
  ^bb0(%in: f32, %o: f32):
    %1 = arith.addf %in, %in : f32
    linalg.yield %1 : f32
  } -> tensor<5x3xf32>
  %0 = linalg.matmul ins(%x, %more : tensor<8x5xf32>, tensor<5x3xf32>) outs(%out : tensor<8x3xf32>) -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}

// Neither operand has the axis of rows: the left one gets it.
// CHECK-LABEL: func.func @neither(
// CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<8x5xi8>)
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "stored-broadcast"} %[[WIDE]]
// CHECK: linalg.generic {{.*}} ins(%[[STORED]],
func.func @neither(%x: tensor<5xi8>, %w: tensor<5x3xi8>, %out: tensor<8x3xi32>) -> tensor<8x3xi32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k)>, affine_map<(m, n, k) -> (k, n)>,
      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<5xi8>, tensor<5x3xi8>) outs(%out : tensor<8x3xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<8x3xi32>
  return %0 : tensor<8x3xi32>
}

// Unchanged: a left operand that is equal along a batch that the right one has, and rows that differ by their index.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT: optimization_barrier
// CHECK: return
func.func @stays(%x: tensor<8x5xf32>, %w: tensor<4x5x3xf32>, %out: tensor<4x8x3xf32>, %v: tensor<5x3xf32>,
    %p: tensor<8x3xf32>) -> (tensor<4x8x3xf32>, tensor<8x3xf32>) {
  %e = tensor.empty() : tensor<4x8x5xf32>
  %batch = linalg.broadcast ins(%x : tensor<8x5xf32>) outs(%e : tensor<4x8x5xf32>) dimensions = [0]
  %0 = linalg.batch_matmul ins(%batch, %w : tensor<4x8x5xf32>, tensor<4x5x3xf32>) outs(%out : tensor<4x8x3xf32>)
      -> tensor<4x8x3xf32>
  %r = tensor.empty() : tensor<8x5xf32>
  %counted = linalg.generic {indexing_maps = [#mk], iterator_types = ["parallel", "parallel"]} outs(%r : tensor<8x5xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %1 = arith.sitofp %j : i32 to f32
    linalg.yield %1 : f32
  } -> tensor<8x5xf32>
  %2 = linalg.matmul ins(%counted, %v : tensor<8x5xf32>, tensor<5x3xf32>) outs(%p : tensor<8x3xf32>) -> tensor<8x3xf32>
  return %0, %2 : tensor<4x8x3xf32>, tensor<8x3xf32>
}
