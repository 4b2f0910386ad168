// RUN: qmlir-opt --split-input-file --pass-pipeline=qmlir-store-batches %s | filecheck %s

#full = affine_map<(b, m, k) -> (b, m, k)>
#rows = affine_map<(b, m, k) -> (b, m)>

// Three rows are padded to a tile, so the operand is computed in a separate dispatch.
// CHECK-LABEL: func.func @padded(
// CHECK: %[[SCALED:.*]] = linalg.generic
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "padded-batch"} %[[SCALED]]
// CHECK: linalg.batch_matmul ins(%[[STORED]], %{{.*}} :
func.func @padded(%x: tensor<2x3x8xf32>, %s: tensor<2x3xf32>, %w: tensor<2x8x4xf32>, %out: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %e = tensor.empty() : tensor<2x3x8xf32>
  %scaled = linalg.generic {indexing_maps = [#full, #rows, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<2x3x8xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x8xf32>
  %y = linalg.batch_matmul ins(%scaled, %w : tensor<2x3x8xf32>, tensor<2x8x4xf32>) outs(%out : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

#full = affine_map<(b, m, k) -> (b, m, k)>
#rows = affine_map<(b, m, k) -> (b, m)>

// A dynamic number of rows may need padding.
// CHECK-LABEL: func.func @dynamic(
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "padded-batch"}
func.func @dynamic(%x: tensor<2x?x8xf32>, %s: tensor<2x?xf32>, %e: tensor<2x?x8xf32>, %w: tensor<2x8x4xf32>, %out: tensor<2x?x4xf32>) -> tensor<2x?x4xf32> {
  %scaled = linalg.generic {indexing_maps = [#full, #rows, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<2x?x8xf32>, tensor<2x?xf32>) outs(%e : tensor<2x?x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x?x8xf32>
  %y = linalg.batch_matmul ins(%scaled, %w : tensor<2x?x8xf32>, tensor<2x8x4xf32>) outs(%out : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %y : tensor<2x?x4xf32>
}

// -----

// CHECK-LABEL: func.func @broadcast(
// CHECK: %[[WIDE:.*]] = linalg.broadcast
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "padded-batch"} %[[WIDE]]
// CHECK: linalg.batch_matmul ins(%[[STORED]], %{{.*}} :
func.func @broadcast(%x: tensor<2x3xf32>, %w: tensor<2x8x4xf32>, %out: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %e = tensor.empty() : tensor<2x3x8xf32>
  %wide = linalg.broadcast ins(%x : tensor<2x3xf32>) outs(%e : tensor<2x3x8xf32>) dimensions = [2]
  %y = linalg.batch_matmul ins(%wide, %w : tensor<2x3x8xf32>, tensor<2x8x4xf32>) outs(%out : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

#full = affine_map<(b, m, k) -> (b, m, k)>
#rows = affine_map<(b, m, k) -> (b, m)>

// The barrier is in front of a transpose, which IREE packs like a tensor in memory.
// CHECK-LABEL: func.func @transposed(
// CHECK: %[[SCALED:.*]] = linalg.generic
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "padded-batch"} %[[SCALED]]
// CHECK: %[[TURNED:.*]] = linalg.transpose ins(%[[STORED]] :
// CHECK: linalg.batch_matmul ins(%{{.*}}, %[[TURNED]] :
func.func @transposed(%x: tensor<2x3x8xf32>, %s: tensor<2x3xf32>, %w: tensor<2x4x8xf32>, %out: tensor<2x4x3xf32>) -> tensor<2x4x3xf32> {
  %e = tensor.empty() : tensor<2x3x8xf32>
  %scaled = linalg.generic {indexing_maps = [#full, #rows, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<2x3x8xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x8xf32>
  %et = tensor.empty() : tensor<2x8x3xf32>
  %t = linalg.transpose ins(%scaled : tensor<2x3x8xf32>) outs(%et : tensor<2x8x3xf32>) permutation = [0, 2, 1]
  %y = linalg.batch_matmul ins(%w, %t : tensor<2x4x8xf32>, tensor<2x8x3xf32>) outs(%out : tensor<2x4x3xf32>) -> tensor<2x4x3xf32>
  return %y : tensor<2x4x3xf32>
}

// -----

#full = affine_map<(b, m, k) -> (b, m, k)>
#rows = affine_map<(b, m, k) -> (b, m)>

// Unchanged: whole tiles, operands in memory, a batch of dynamic size (never packed) and a single product.
// CHECK-LABEL: func.func @whole(
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @whole(%x: tensor<2x32x8xf32>, %s: tensor<2x32xf32>, %w: tensor<2x8x4xf32>, %out: tensor<2x32x4xf32>) -> tensor<2x32x4xf32> {
  %e = tensor.empty() : tensor<2x32x8xf32>
  %scaled = linalg.generic {indexing_maps = [#full, #rows, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<2x32x8xf32>, tensor<2x32xf32>) outs(%e : tensor<2x32x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x32x8xf32>
  %y = linalg.batch_matmul ins(%scaled, %w : tensor<2x32x8xf32>, tensor<2x8x4xf32>) outs(%out : tensor<2x32x4xf32>) -> tensor<2x32x4xf32>
  return %y : tensor<2x32x4xf32>
}

// CHECK-LABEL: func.func @in_memory(
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @in_memory(%x: tensor<2x3x8xf32>, %w: tensor<2x8x4xf32>, %out: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %y = linalg.batch_matmul ins(%x, %w : tensor<2x3x8xf32>, tensor<2x8x4xf32>) outs(%out : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @any_batch(
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @any_batch(%x: tensor<?x3x8xf32>, %s: tensor<?x3xf32>, %e: tensor<?x3x8xf32>, %w: tensor<?x8x4xf32>, %out: tensor<?x3x4xf32>) -> tensor<?x3x4xf32> {
  %scaled = linalg.generic {indexing_maps = [#full, #rows, #full], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<?x3x8xf32>, tensor<?x3xf32>) outs(%e : tensor<?x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x3x8xf32>
  %y = linalg.batch_matmul ins(%scaled, %w : tensor<?x3x8xf32>, tensor<?x8x4xf32>) outs(%out : tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
  return %y : tensor<?x3x4xf32>
}

// -----

// A view splits an axis of a transpose into batch and columns, so that the barrier is behind this view.
// CHECK-LABEL: func.func @split(
// CHECK: %[[SPLIT:.*]] = tensor.expand_shape
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "padded-batch"} %[[SPLIT]]
// CHECK: linalg.transpose ins(%[[STORED]] :
func.func @split(%x: tensor<2x16x20xf32>, %w: tensor<20x10xf32>, %out: tensor<2x16x5xf32>) -> tensor<2x16x5xf32> {
  %et = tensor.empty() : tensor<10x20xf32>
  %t = linalg.transpose ins(%w : tensor<20x10xf32>) outs(%et : tensor<10x20xf32>) permutation = [1, 0]
  %split = tensor.expand_shape %t [[0, 1], [2]] output_shape [2, 5, 20] : tensor<10x20xf32> into tensor<2x5x20xf32>
  %eu = tensor.empty() : tensor<2x20x5xf32>
  %u = linalg.transpose ins(%split : tensor<2x5x20xf32>) outs(%eu : tensor<2x20x5xf32>) permutation = [0, 2, 1]
  %y = linalg.batch_matmul ins(%x, %u : tensor<2x16x20xf32>, tensor<2x20x5xf32>) outs(%out : tensor<2x16x5xf32>) -> tensor<2x16x5xf32>
  return %y : tensor<2x16x5xf32>
}

// -----

#n = affine_map<(m, n) -> (n)>
#mn = affine_map<(m, n) -> (m, n)>

// A tensor that is read with the results gets a barrier, unless it is in memory or is computed from the results.
// CHECK-LABEL: func.func @epilogue(
// CHECK: %[[SUMS:.*]] = linalg.generic
// CHECK: linalg.batch_matmul ins(%{{[^,]*}}, %{{[^,]*}} :
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "padded-batch"} %[[SUMS]]
// CHECK: linalg.generic {{.*}} ins(%{{[^,]*}}, %[[STORED]], %{{[^,]*}} :
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @epilogue(%x: tensor<2x16x8xf32>, %w: tensor<2x8x3xf32>, %v: tensor<16x6xf32>, %b: tensor<6xf32>, %out: tensor<2x16x3xf32>, %s0: tensor<6xf32>) -> tensor<16x6xf32> {
  %sums = linalg.generic {indexing_maps = [#mn, #n], iterator_types = ["reduction", "parallel"]}
      ins(%v : tensor<16x6xf32>) outs(%s0 : tensor<6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<6xf32>
  %y = linalg.batch_matmul ins(%x, %w : tensor<2x16x8xf32>, tensor<2x8x3xf32>) outs(%out : tensor<2x16x3xf32>) -> tensor<2x16x3xf32>
  %et = tensor.empty() : tensor<16x2x3xf32>
  %t = linalg.transpose ins(%y : tensor<2x16x3xf32>) outs(%et : tensor<16x2x3xf32>) permutation = [1, 0, 2]
  %merged = tensor.collapse_shape %t [[0], [1, 2]] : tensor<16x2x3xf32> into tensor<16x6xf32>
  %largest = linalg.generic {indexing_maps = [#mn, #n], iterator_types = ["reduction", "parallel"]}
      ins(%merged : tensor<16x6xf32>) outs(%s0 : tensor<6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<6xf32>
  %e = tensor.empty() : tensor<16x6xf32>
  %r = linalg.generic {indexing_maps = [#mn, #n, #n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%merged, %sums, %b : tensor<16x6xf32>, tensor<6xf32>, tensor<6xf32>) outs(%e : tensor<16x6xf32>) {
  ^bb0(%a: f32, %s: f32, %c: f32, %o: f32):
    %0 = arith.subf %a, %s : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> tensor<16x6xf32>
  %q = linalg.generic {indexing_maps = [#mn, #n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%r, %largest : tensor<16x6xf32>, tensor<6xf32>) outs(%e : tensor<16x6xf32>) {
  ^bb0(%a: f32, %s: f32, %o: f32):
    %0 = arith.subf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<16x6xf32>
  return %q : tensor<16x6xf32>
}
