// RUN: qmlir-opt %s --split-input-file --pass-pipeline=qmlir-undo-broadcasts | filecheck %s

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// A gather tests at run time whether a size is 1. The sizes that it tests are those of its own loops, so each index is
// the index of its loop. The axis of one element is read at 0.
// CHECK: #[[$ROWS:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
// CHECK-LABEL: func.func @gather(
// CHECK: %[[SUMS:.*]] = linalg.fill
// CHECK: linalg.generic {indexing_maps = [#[[$ROWS]], #{{.*}}], iterator_types = ["parallel", "parallel", "parallel"]} ins(%[[SUMS]] : tensor<?x?x1xf32>)
// CHECK-NOT: tensor.extract
// CHECK: return
func.func @gather(%x: tensor<?x?x768xf32>, %one: f32) -> tensor<?x?x768xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.dim %x, %c0 : tensor<?x?x768xf32>
  %b = tensor.dim %x, %c1 : tensor<?x?x768xf32>
  %rows = tensor.empty(%a, %b) : tensor<?x?x1xf32>
  %sums = linalg.fill ins(%one : f32) outs(%rows : tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
  %out = tensor.empty(%a, %b) : tensor<?x?x768xf32>
  %r = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%out : tensor<?x?x768xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %first = arith.cmpi eq, %a, %c1 : index
    %row = arith.select %first, %c0, %i : index
    %second = arith.cmpi eq, %b, %c1 : index
    %column = arith.select %second, %c0, %j : index
    %element = tensor.extract %sums[%row, %column, %c0] : tensor<?x?x1xf32>
    linalg.yield %element : f32
  } -> tensor<?x?x768xf32>
  return %r : tensor<?x?x768xf32>
}

// -----

#all = affine_map<(d0, d1) -> (d0, d1)>

// Unchanged: the tensor has other sizes than the loops, or a constant indexes an axis of several elements.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-2: tensor.extract
// CHECK: return
func.func @others(%x: tensor<?x8xf32>, %n: index) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.dim %x, %c0 : tensor<?x8xf32>
  %out = tensor.empty(%n) : tensor<?x8xf32>
  %r = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%out : tensor<?x8xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %one = arith.cmpi eq, %a, %c1 : index
    %row = arith.select %one, %c0, %i : index
    %element = tensor.extract %x[%row, %j] : tensor<?x8xf32>
    linalg.yield %element : f32
  } -> tensor<?x8xf32>
  %whole = tensor.empty(%a) : tensor<?x8xf32>
  %s = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%whole : tensor<?x8xf32>) {
  ^bb0(%o: f32):
    %j = linalg.index 1 : index
    %element = tensor.extract %x[%c0, %j] : tensor<?x8xf32>
    linalg.yield %element : f32
  } -> tensor<?x8xf32>
  return %r, %s : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

#matrix = affine_map<(d0, d1, d2) -> (d1, d2)>
#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// Products by copies of one matrix become one product of all rows. Transposed copies and different matrices stay.
// CHECK-LABEL: func.func @products(
// CHECK-SAME: %[[X:.*]]: tensor<?x?x64xf32>, %[[W:.*]]: tensor<64x64xf32>, %[[Y:.*]]: tensor<?x64x64xf32>
// CHECK: %[[ROWS:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]] : tensor<?x?x64xf32> into tensor<?x64xf32>
// CHECK: %[[P:.*]] = linalg.matmul ins(%[[ROWS]], %[[W]] : tensor<?x64xf32>, tensor<64x64xf32>)
// CHECK: tensor.expand_shape %[[P]] {{\[}}[0, 1], [2]] output_shape [%{{.*}}, %{{.*}}, 64]
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: return
func.func @products(%x: tensor<?x?x64xf32>, %w: tensor<64x64xf32>, %y: tensor<?x64x64xf32>)
    -> (tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %empty = tensor.empty(%b) : tensor<?x64x64xf32>
  %copies = linalg.generic {indexing_maps = [#matrix, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<64x64xf32>) outs(%empty : tensor<?x64x64xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<?x64x64xf32>
  %turned = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d1)>, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<64x64xf32>) outs(%empty : tensor<?x64x64xf32>) {
  ^bb0(%in: f32, %o: f32):
    linalg.yield %in : f32
  } -> tensor<?x64x64xf32>
  %out = tensor.empty(%b, %m) : tensor<?x?x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%out : tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  %0 = linalg.batch_matmul ins(%x, %copies : tensor<?x?x64xf32>, tensor<?x64x64xf32>) outs(%fill : tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  %1 = linalg.batch_matmul ins(%x, %turned : tensor<?x?x64xf32>, tensor<?x64x64xf32>) outs(%fill : tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  %2 = linalg.batch_matmul ins(%x, %y : tensor<?x?x64xf32>, tensor<?x64x64xf32>) outs(%fill : tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  return %0, %1, %2 : tensor<?x?x64xf32>, tensor<?x?x64xf32>, tensor<?x?x64xf32>
}

// -----

#matrix = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#transposed = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

// The copies have two axes of images, which are merged into the batch axis. Transposed copies stay a batch.
// CHECK-LABEL: func.func @images(
// CHECK-SAME: %[[X:.*]]: tensor<8x4x32xf32>, %[[W:.*]]: tensor<32x32xf32>
// CHECK: %[[ROWS:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]] : tensor<8x4x32xf32> into tensor<32x32xf32>
// CHECK: linalg.matmul ins(%[[ROWS]], %[[W]] : tensor<32x32xf32>, tensor<32x32xf32>)
// CHECK: linalg.batch_matmul
// CHECK: return
func.func @images(%x: tensor<8x4x32xf32>, %w: tensor<32x32xf32>) -> (tensor<8x4x32xf32>, tensor<8x4x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x4x32x32xf32>
  %copies = linalg.generic {indexing_maps = [#matrix, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<32x32xf32>) outs(%empty : tensor<2x4x32x32xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x4x32x32xf32>
  %turned = linalg.generic {indexing_maps = [#transposed, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<32x32xf32>) outs(%empty : tensor<2x4x32x32xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<2x4x32x32xf32>
  %a = tensor.collapse_shape %copies [[0, 1], [2], [3]] : tensor<2x4x32x32xf32> into tensor<8x32x32xf32>
  %b = tensor.collapse_shape %turned [[0, 1], [2], [3]] : tensor<2x4x32x32xf32> into tensor<8x32x32xf32>
  %out = tensor.empty() : tensor<8x4x32xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%out : tensor<8x4x32xf32>) -> tensor<8x4x32xf32>
  %r = linalg.batch_matmul ins(%x, %a : tensor<8x4x32xf32>, tensor<8x32x32xf32>) outs(%fill : tensor<8x4x32xf32>) -> tensor<8x4x32xf32>
  %s = linalg.batch_matmul ins(%x, %b : tensor<8x4x32xf32>, tensor<8x32x32xf32>) outs(%fill : tensor<8x4x32xf32>) -> tensor<8x4x32xf32>
  return %r, %s : tensor<8x4x32xf32>, tensor<8x4x32xf32>
}
