// RUN: qmlir-opt --split-input-file --pass-pipeline='qmlir-start-at-zero' %s | filecheck %s

// CHECK-LABEL: func.func @bias(
// CHECK: %[[ZEROS:.*]] = linalg.fill
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : {{.*}}) outs(%[[ZEROS]] : tensor<1x4x4x6xf32>)
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[R]], %arg2 : tensor<1x4x4x6xf32>, tensor<1x4x4x6xf32>)
// CHECK: arith.addf
// CHECK: return %[[SUM]]
func.func @bias(%x: tensor<1x6x6x3xf32>, %w: tensor<6x3x3x3xf32>, %b: tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32> {
  %0 = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x6x6x3xf32>, tensor<6x3x3x3xf32>) outs(%b : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>
  return %0 : tensor<1x4x4x6xf32>
}

// -----

// CHECK-LABEL: func.func @integers(
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<?x3xi8>, tensor<3x4xi8>)
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg2 : tensor<?x4xi32>, tensor<?x4xi32>)
// CHECK: arith.addi
func.func @integers(%x: tensor<?x3xi8>, %w: tensor<3x4xi8>, %b: tensor<?x4xi32>) -> tensor<?x4xi32> {
  %0 = linalg.matmul ins(%x, %w : tensor<?x3xi8>, tensor<3x4xi8>) outs(%b : tensor<?x4xi32>) -> tensor<?x4xi32>
  return %0 : tensor<?x4xi32>
}

// -----

// Unchanged: a product that starts from zeros, and one that qmlir has configured (`compilation_info`).
#translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1]>
#configured = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{}>, translation_info = #translation>
// CHECK-LABEL: func.func @left_alone(
// CHECK: linalg.matmul
// CHECK: linalg.matmul
// CHECK-NOT: linalg
func.func @left_alone(%x: tensor<5x3xf32>, %w: tensor<3x4xf32>, %b: tensor<5x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>) {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x4xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<5x4xf32>) -> tensor<5x4xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<5x3xf32>, tensor<3x4xf32>) outs(%f : tensor<5x4xf32>) -> tensor<5x4xf32>
  %1 = linalg.matmul {compilation_info = #configured} ins(%x, %w : tensor<5x3xf32>, tensor<3x4xf32>)
      outs(%b : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %0, %1 : tensor<5x4xf32>, tensor<5x4xf32>
}
