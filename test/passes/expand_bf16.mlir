// RUN: qmlir-opt %s --pass-pipeline=qmlir-expand-bf16 | filecheck %s
// RUN: qmlir-opt %s --pass-pipeline='qmlir-expand-bf16{kernels=false}' | filecheck %s --check-prefix=NATIVE

// With `kernels=false`, for a CPU with bf16 instructions, the bodies of kernels are unchanged.
// NATIVE-LABEL: func.func @float(
// NATIVE-NOT: arith.truncf
// NATIVE: arith.bitcast %{{.*}} : i16 to bf16
// NATIVE-LABEL: func.func @kernel(
// NATIVE: arith.truncf

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

// MLIR would fold these two conversions into one.
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

// CHECK-LABEL: func.func @float(
// CHECK-NOT: arith.truncf
// CHECK: arith.bitcast %{{.*}} : i16 to bf16
func.func @float(%x: tensor<4xf32>, %init: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%init : tensor<4xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %1 = arith.truncf %in : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// In a kernel, the fence that kept the rounding separate is removed, because integer operations do not need it.
// CHECK-LABEL: func.func @vector(
// CHECK-NOT: arith.truncf
// CHECK-NOT: fence
// CHECK: %[[Y:.*]] = arith.bitcast %{{.*}} : vector<8xi16> to vector<8xbf16>
// CHECK: return %[[Y]]
func.func @vector(%x: vector<8xf32>) -> vector<8xbf16> {
  %0 = arith.truncf %x : vector<8xf32> to vector<8xbf16>
  %1 = llvm.intr.arithmetic.fence(%0) : (vector<8xbf16>) -> vector<8xbf16>
  return %1 : vector<8xbf16>
}

// Other conversions stay.
// CHECK-LABEL: func.func @half(
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: arith.sitofp %{{.*}} : i8 to f32
func.func @half(%x: f32, %i: i8) -> (f16, f32) {
  %0 = arith.truncf %x : f32 to f16
  %1 = arith.sitofp %i : i8 to f32
  return %0, %1 : f16, f32
}

// CHECK-LABEL: func.func @masked(
// CHECK: llvm.intr.masked.load{{.*}} -> vector<8xi16>
// CHECK: llvm.intr.masked.store{{.*}} : vector<8xi16>
func.func @masked(%p: !llvm.ptr, %m: vector<8xi1>, %rest: vector<8xbf16>) {
  %0 = "llvm.intr.masked.load"(%p, %m, %rest) {alignment = 1 : i64} : (!llvm.ptr, vector<8xi1>, vector<8xbf16>) -> vector<8xbf16>
  "llvm.intr.masked.store"(%0, %p, %m) {alignment = 1 : i64} : (vector<8xbf16>, !llvm.ptr, vector<8xi1>) -> ()
  return
}

// CHECK-LABEL: func.func @kernel(
// CHECK-NOT: arith.truncf
func.func @kernel(%x: vector<8xf32>) -> vector<8xbf16> {
  %0 = arith.truncf %x : vector<8xf32> to vector<8xbf16>
  return %0 : vector<8xbf16>
}
