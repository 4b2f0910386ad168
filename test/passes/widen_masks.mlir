// RUN: qmlir-opt --split-input-file --pass-pipeline=qmlir-widen-masks %s | filecheck %s

// A mask that is read behind a product is made of bytes, in a dispatch of its own.
// CHECK-LABEL: func.func @masked(
// CHECK: arith.extui {{.*}} : i1 to i8
// CHECK: [[BYTES:%[0-9]+]] = util.optimization_barrier {{.*}} : tensor<4x4xi8>
// CHECK: ins([[BYTES]], %{{.*}} : tensor<4x4xi8>
// CHECK: arith.trunci {{.*}} : i8 to i1
// CHECK: arith.select
func.func @masked(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>, %z: tensor<4x4xf32>, %m: tensor<4x4xi1>,
                  %n: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
                                        affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%m, %0, %n : tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) {
  ^bb0(%a: i1, %b: f32, %c: f32, %d: f32):
    %2 = arith.select %a, %b, %c : f32
    linalg.yield %2 : f32
  } -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
