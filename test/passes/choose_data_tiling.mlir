// RUN: qmlir-opt --split-input-file --pass-pipeline=qmlir-choose-data-tiling %s | filecheck %s

// A product beside one of dynamic batch is marked, that one is not.
// CHECK-LABEL: func.func @attention(
// CHECK: linalg.batch_matmul ins(
// CHECK: linalg.matmul {iree.opt.data_tiling}
func.func @attention(%a: tensor<?x4x8xf32>, %b: tensor<?x8x4xf32>, %c: tensor<?x4x4xf32>, %x: tensor<4x8xf32>,
                     %w: tensor<8x4xf32>, %z: tensor<4x4xf32>) -> (tensor<?x4x4xf32>, tensor<4x4xf32>) {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<?x4x8xf32>, tensor<?x8x4xf32>) outs(%c : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  %1 = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0, %1 : tensor<?x4x4xf32>, tensor<4x4xf32>
}

// -----

// A program without one is left alone.
// CHECK-LABEL: func.func @static(
// CHECK-NOT: iree.opt.data_tiling
// CHECK: return
func.func @static(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>, %z: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
