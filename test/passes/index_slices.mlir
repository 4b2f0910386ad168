// RUN: qmlir-opt %s --pass-pipeline=qmlir-index-slices | filecheck %s

#row = affine_map<(b, i) -> (i)>
#both = affine_map<(b, i) -> (b, i)>

// The index becomes an index of the whole tensor, and the second axis, which the slice has dropped, is added again.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[X:.*]]: tensor<2x5x9xi32>,
// CHECK: linalg.generic
// CHECK: %[[B:.*]] = linalg.index 0
// CHECK: %[[I:.*]] = arith.index_cast
// CHECK: arith.muli %{{.*}}, %[[B]]
// CHECK: arith.muli %{{.*}}, %[[I]]
// CHECK: %[[PLACE:.*]] = arith.addi
// CHECK: tensor.extract %[[X]][%{{.*}}, %{{.*}}, %[[PLACE]]] : tensor<2x5x9xi32>
// CHECK-NOT: optimization_barrier
// CHECK: return
func.func @rows(%x: tensor<2x5x9xi32>, %at: tensor<3xi32>) -> tensor<2x3xi32> {
  %part = tensor.extract_slice %x[0, 3, 1] [2, 1, 4] [1, 1, 2] : tensor<2x5x9xi32> to tensor<2x4xi32>
  %e = tensor.empty() : tensor<2x3xi32>
  %r = linalg.generic {indexing_maps = [#row, #both], iterator_types = ["parallel", "parallel"]}
      ins(%at : tensor<3xi32>) outs(%e : tensor<2x3xi32>) {
  ^bb0(%k: i32, %out: i32):
    %b = linalg.index 0 : index
    %i = arith.index_cast %k : i32 to index
    %v = tensor.extract %part[%b, %i] : tensor<2x4xi32>
    linalg.yield %v : i32
  } -> tensor<2x3xi32>
  return %r : tensor<2x3xi32>
}

// A slice that is read through a reshape becomes a tensor in memory of its own.
// CHECK-LABEL: func.func @reshaped(
// CHECK: %[[PART:.*]] = tensor.extract_slice
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "indexed-part"} %[[PART]]
// CHECK: tensor.collapse_shape %[[STORED]]
func.func @reshaped(%x: tensor<2x5xi32>, %at: tensor<3xi32>) -> tensor<3xi32> {
  %part = tensor.extract_slice %x[0, 1] [2, 4] [1, 1] : tensor<2x5xi32> to tensor<2x4xi32>
  %flat = tensor.collapse_shape %part [[0, 1]] : tensor<2x4xi32> into tensor<8xi32>
  %e = tensor.empty() : tensor<3xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%at : tensor<3xi32>) outs(%e : tensor<3xi32>) {
  ^bb0(%k: i32, %out: i32):
    %i = arith.index_cast %k : i32 to index
    %v = tensor.extract %flat[%i] : tensor<8xi32>
    linalg.yield %v : i32
  } -> tensor<3xi32>
  return %r : tensor<3xi32>
}

// A slice that is contiguous in memory stays: the last rows of a matrix.
// CHECK-LABEL: func.func @neighbours(
// CHECK: %[[PART:.*]] = tensor.extract_slice
// CHECK: tensor.extract %[[PART]]
func.func @neighbours(%x: tensor<5x4xi32>, %at: tensor<2xindex>) -> tensor<2xi32> {
  %part = tensor.extract_slice %x[2, 0] [3, 4] [1, 1] : tensor<5x4xi32> to tensor<3x4xi32>
  %e = tensor.empty() : tensor<2xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%at : tensor<2xindex>) outs(%e : tensor<2xi32>) {
  ^bb0(%k: index, %out: i32):
    %v = tensor.extract %part[%k, %k] : tensor<3x4xi32>
    linalg.yield %v : i32
  } -> tensor<2xi32>
  return %r : tensor<2xi32>
}
