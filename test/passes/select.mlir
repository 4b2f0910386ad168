// RUN: not qmlir-opt %s --split-input-file --pass-pipeline='qmlir-select{target=rocm:gfx942}' 2> %t.err | filecheck %s
// RUN: not qmlir-opt %s --split-input-file --pass-pipeline='qmlir-select{target=vulkan:lavapipe}' 2>&1 | filecheck %s --check-prefix=VULKAN

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// The module gets the target's description; the notes for strategies are dropped.
// CHECK: gfx942
// CHECK: module attributes {hal.device.targets = [#device_target_hip]}
// CHECK-LABEL: func.func @int8(
// CHECK-NOT: qmlir.lhs_magnitude
func.func @int8(%x: tensor<64x64xi8>, %w: tensor<64x64xi8>, %init: tensor<64x64xi32>) -> tensor<64x64xi32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x64xi8>, tensor<64x64xi8>) outs(%init : tensor<64x64xi32>)
      attrs = {qmlir.lhs_magnitude = 128 : i64, qmlir.rhs_magnitude = 8 : i64} {
  ^bb0(%in: i8, %in_0: i8, %acc: i32):
    %1 = arith.extsi %in : i8 to i32
    %2 = arith.extsi %in_0 : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %acc, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<64x64xi32>
  return %0 : tensor<64x64xi32>
}

// -----

// An op that is not a contraction is unchanged.
// CHECK-LABEL: func.func @elementwise(
// CHECK-NEXT: arith.addi %arg0, %arg0 : tensor<4xi32>
func.func @elementwise(%x: tensor<4xi32>) -> tensor<4xi32> {
  %0 = arith.addi %x, %x : tensor<4xi32>
  return %0 : tensor<4xi32>
}

// -----

// A type that the target cannot compute with: the error lists the reason of every strategy, and types that would fit.
// VULKAN: select.mlir:{{[0-9]+}}:8: error: no strategy of vulkan:lavapipe compiles this matmul of f8E4M3B11FNUZ x f8E4M3B11FNUZ -> f32:
// VULKAN: stock: vulkan:lavapipe has no f8E4M3B11FNUZ arithmetic (lhs) (use one of {{.*}}, or another target)
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @fp8(%x: tensor<64x64xf8E4M3B11FNUZ>, %w: tensor<64x64xf8E4M3B11FNUZ>, %init: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x64xf8E4M3B11FNUZ>, tensor<64x64xf8E4M3B11FNUZ>) outs(%init : tensor<64x64xf32>) {
  ^bb0(%in: f8E4M3B11FNUZ, %in_0: f8E4M3B11FNUZ, %acc: f32):
    %1 = arith.extf %in : f8E4M3B11FNUZ to f32
    %2 = arith.extf %in_0 : f8E4M3B11FNUZ to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
