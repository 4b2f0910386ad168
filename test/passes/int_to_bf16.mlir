// RUN: qmlir-opt %s --pass-pipeline=qmlir-int-to-bf16 | filecheck %s

#id = affine_map<(i) -> (i)>

// CHECK-LABEL: func.func @converted(
// CHECK: ^bb0(%[[X:.*]]: i8, %{{.*}}: bf16):
// CHECK: %[[F:.*]] = arith.sitofp %[[X]] : i8 to f32
// CHECK: arith.bitcast %[[F]] : f32 to i32
// CHECK: %[[Y:.*]] = arith.bitcast %{{.*}} : i16 to bf16
// CHECK: linalg.yield %[[Y]]
func.func @converted(%x: tensor<4xi8>, %init: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xi8>) outs(%init : tensor<4xbf16>) {
  ^bb0(%in: i8, %out: bf16):
    %1 = arith.sitofp %in : i8 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// MLIR would fold these two into one conversion.
// CHECK-LABEL: func.func @rounded(
// CHECK: arith.uitofp %{{.*}} : i8 to f32
// CHECK-NOT: arith.truncf
// CHECK: arith.bitcast %{{.*}} : i16 to bf16
func.func @rounded(%x: tensor<4xi8>, %init: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xi8>) outs(%init : tensor<4xbf16>) {
  ^bb0(%in: i8, %out: bf16):
    %1 = arith.uitofp %in : i8 to f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// IREE expands the rounding of other values itself.
// CHECK-LABEL: func.func @float(
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NOT: arith.bitcast
func.func @float(%x: tensor<4xf32>, %init: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%init : tensor<4xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %1 = arith.truncf %in : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}
