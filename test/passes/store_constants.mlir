// RUN: qmlir-opt %s --pass-pipeline=qmlir-store-constants | filecheck %s

#id = affine_map<(m) -> (m)>

// IREE inlines a small constant into the dispatch that reads it.
// CHECK-LABEL: func.func @constant(
// CHECK: %[[C:.*]] = arith.constant dense<[1.000000e+00, -2.000000e+00]> : tensor<2xbf16>
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "constant-bits"} %[[C]] : tensor<2xbf16>
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}}, %[[STORED]] : tensor<2xbf16>, tensor<2xbf16>)
func.func @constant(%x: tensor<2xbf16>, %init: tensor<2xbf16>) -> tensor<2xbf16> {
  %c = arith.constant dense<[1.0, -2.0]> : tensor<2xbf16>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %c : tensor<2xbf16>, tensor<2xbf16>) outs(%init : tensor<2xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %1 = arith.addf %a, %b : bf16
    linalg.yield %1 : bf16
  } -> tensor<2xbf16>
  return %0 : tensor<2xbf16>
}

// CHECK-LABEL: func.func @byte(
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "constant-bits"} %{{.*}} : tensor<200xf8E4M3FN>
func.func @byte() -> tensor<200xf8E4M3FN> {
  %c = arith.constant dense<"0x3838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383838383840404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040404040"> : tensor<200xf8E4M3FN>
  return %c : tensor<200xf8E4M3FN>
}

// Unchanged: a splat, which IREE makes a scalar, a large constant, which it stores, and other types, which are correct.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: util.optimization_barrier
func.func @others() -> (tensor<2xbf16>, tensor<2x65xbf16>, tensor<2xf16>) {
  %c = arith.constant dense<1.0> : tensor<2xbf16>
  %large = arith.constant dense<"0x803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F803F00400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040004000400040"> : tensor<2x65xbf16>
  %half = arith.constant dense<[1.0, 2.0]> : tensor<2xf16>
  return %c, %large, %half : tensor<2xbf16>, tensor<2x65xbf16>, tensor<2xf16>
}
