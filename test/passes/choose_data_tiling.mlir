// RUN: qmlir-opt --split-input-file --pass-pipeline=qmlir-choose-data-tiling %s | filecheck %s

// In a program with a product whose batch is dynamic, the other products are marked.
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

// A program without such a product is unchanged.
// CHECK-LABEL: func.func @static(
// CHECK-NOT: iree.opt.data_tiling
// CHECK: return
func.func @static(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>, %z: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x4xf32>) outs(%z : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

// Without another product to mark, the `tensor.empty` is marked, because IREE packs every product if it finds no mark.
// CHECK-LABEL: func.func @attention_alone(
// CHECK: tensor.empty{{.*}} {iree.opt.data_tiling}
// CHECK: linalg.batch_matmul ins(
func.func @attention_alone(%a: tensor<?x4x8xf32>, %b: tensor<?x8x4xf32>) -> tensor<?x4x4xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %a, %c0 : tensor<?x4x8xf32>
  %e = tensor.empty(%n) : tensor<?x4x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  %0 = linalg.batch_matmul ins(%a, %b : tensor<?x4x8xf32>, tensor<?x8x4xf32>) outs(%f : tensor<?x4x4xf32>) -> tensor<?x4x4xf32>
  return %0 : tensor<?x4x4xf32>
}

// -----

// IREE fuses a product of elements and the sum over it into a product with a batch of dynamic size.
// CHECK-LABEL: func.func @masked_sum(
// CHECK: linalg.matmul {iree.opt.data_tiling}
func.func @masked_sum(%x: tensor<?x5x4xf32>, %mask: tensor<?x5xf32>, %e: tensor<?x5x4xf32>, %z: tensor<?x4xf32>,
                      %w: tensor<4x4xf32>, %o: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(b, t, n) -> (b, t, n)>, affine_map<(b, t, n) -> (b, t)>,
      affine_map<(b, t, n) -> (b, t, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %mask : tensor<?x5x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x4xf32>) {
  ^bb0(%a: f32, %m: f32, %init: f32):
    %3 = arith.mulf %a, %m : f32
    linalg.yield %3 : f32
  } -> tensor<?x5x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(b, n, t) -> (b, t, n)>, affine_map<(b, n, t) -> (b, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%0 : tensor<?x5x4xf32>) outs(%z : tensor<?x4xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %3 = arith.addf %sum, %a : f32
    linalg.yield %3 : f32
  } -> tensor<?x4xf32>
  %2 = linalg.matmul ins(%1, %w : tensor<?x4xf32>, tensor<4x4xf32>) outs(%o : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %2 : tensor<?x4xf32>
}

// -----

// A product that sums over a dynamic size, and that has an operand computed by another op, is not marked.
// CHECK-LABEL: func.func @dynamic_sum(
// CHECK: linalg.matmul ins(
// CHECK: linalg.matmul {iree.opt.data_tiling}
func.func @dynamic_sum(%x: tensor<4x?xf32>, %e: tensor<4x?xf32>, %w: tensor<?x4xf32>, %v: tensor<4x4xf32>,
                       %z: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x?xf32>) outs(%e : tensor<4x?xf32>) {
  ^bb0(%a: f32, %init: f32):
    %3 = arith.addf %a, %a : f32
    linalg.yield %3 : f32
  } -> tensor<4x?xf32>
  %1 = linalg.matmul ins(%0, %w : tensor<4x?xf32>, tensor<?x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = linalg.matmul ins(%1, %v : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
