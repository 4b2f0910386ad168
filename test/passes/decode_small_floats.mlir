// RUN: qmlir-opt %s --pass-pipeline=qmlir-decode-small-floats | filecheck %s
// RUN: qmlir-opt %s --pass-pipeline='qmlir-decode-small-floats{keep=f8E4M3FN|f8E5M2}' | filecheck %s --check-prefix=KEEP

#id = affine_map<(i) -> (i)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1] subgroup_size = 64>
#compilation = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{workgroup = [16, 16, 0]}>, translation_info = #translation>

// Normal codes are shifted into place, subnormal codes are multiplied, and a code of all ones is NaN.
// CHECK-LABEL: func.func @e4m3(
// CHECK: %[[BITS:.*]] = arith.bitcast %{{.*}} : f8E4M3FN to i8
// CHECK: %[[CODE:.*]] = arith.extui %[[BITS]] : i8 to i32
// CHECK: arith.shli
// CHECK: arith.constant 1006632960 : i32
// CHECK: arith.constant 0.001953125
// CHECK: arith.bitcast %{{.*}} : i32 to f32
// CHECK-NOT: arith.extf
// KEEP-LABEL: func.func @e4m3(
// KEEP: arith.extf %{{.*}} : f8E4M3FN to f32
func.func @e4m3(%x: tensor<8xf8E4M3FN>, %init: tensor<8xf32>) -> tensor<8xf32> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf8E4M3FN>) outs(%init : tensor<8xf32>) {
  ^bb0(%in: f8E4M3FN, %out: f32):
    %1 = arith.extf %in : f8E4M3FN to f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// A format that is not in `keep` is decoded to f32, and truncated to f16, which is exact too.
// KEEP-LABEL: func.func @fnuz(
// KEEP-NOT: arith.extf
// KEEP: arith.truncf %{{.*}} : f32 to f16
func.func @fnuz(%x: tensor<8xf8E5M2FNUZ>, %init: tensor<8xf16>) -> tensor<8xf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf8E5M2FNUZ>) outs(%init : tensor<8xf16>) {
  ^bb0(%in: f8E5M2FNUZ, %out: f16):
    %1 = arith.extf %in : f8E5M2FNUZ to f16
    linalg.yield %1 : f16
  } -> tensor<8xf16>
  return %0 : tensor<8xf16>
}

// A contraction with a matrix instruction keeps its extensions, by which IREE recognises it.
// CHECK-LABEL: func.func @configured(
// CHECK: arith.extf %{{.*}} : f8E4M3FN to f32
func.func @configured(%x: tensor<16x32xf8E4M3FN>, %w: tensor<16x32xf8E4M3FN>, %init: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<16x32xf8E4M3FN>, tensor<16x32xf8E4M3FN>) outs(%init : tensor<16x16xf32>)
      attrs = {compilation_info = #compilation} {
  ^bb0(%p: f8E4M3FN, %q: f8E4M3FN, %acc: f32):
    %1 = arith.extf %p : f8E4M3FN to f32
    %2 = arith.extf %q : f8E4M3FN to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}

// The conversion to a one-byte float rounds in integer arithmetic, then truncates to a byte.
// CHECK-LABEL: func.func @encode(
// CHECK-NOT: arith.truncf
// CHECK: %[[BYTE:.*]] = arith.trunci %{{.*}} : i32 to i8
// CHECK: arith.bitcast %[[BYTE]] : i8 to f8E4M3FN
// KEEP-LABEL: func.func @encode(
// KEEP: arith.truncf %{{.*}} : f32 to f8E4M3FN
func.func @encode(%x: tensor<8xf32>, %init: tensor<8xf8E4M3FN>) -> tensor<8xf8E4M3FN> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%init : tensor<8xf8E4M3FN>) {
  ^bb0(%in: f32, %out: f8E4M3FN):
    %1 = arith.truncf %in : f32 to f8E4M3FN
    linalg.yield %1 : f8E4M3FN
  } -> tensor<8xf8E4M3FN>
  return %0 : tensor<8xf8E4M3FN>
}
