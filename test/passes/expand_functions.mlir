// RUN: qmlir-opt %s --pass-pipeline=qmlir-expand-functions | filecheck %s
// RUN: qmlir-opt %s --pass-pipeline='qmlir-expand-functions{keep=log10|remf exp=true}' | filecheck %s --check-prefix=KEPT
// RUN: qmlir-opt %s --pass-pipeline='qmlir-expand-functions{trunc=true}' | filecheck %s --check-prefix=TRUNC

#map = affine_map<(i) -> (i)>

// CHECK-LABEL: func.func @log10(
// CHECK-NOT: math.log10
// CHECK: %[[LOG:.*]] = math.log %{{.*}} : f32
// CHECK: arith.mulf %[[LOG]], %{{.*}} : f32
// KEPT-LABEL: func.func @log10(
// KEPT: math.log10
func.func @log10(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = math.log10 %a : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// A function of bf16 is computed in f32.
// CHECK-LABEL: func.func @short(
// CHECK: arith.extf
// CHECK-NOT: math.cosh
// CHECK: arith.truncf
func.func @short(%x: tensor<64xbf16>) -> tensor<64xbf16> {
  %e = tensor.empty() : tensor<64xbf16>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xbf16>) outs(%e : tensor<64xbf16>) {
  ^bb0(%a: bf16, %b: bf16):
    %1 = math.cosh %a : bf16
    linalg.yield %1 : bf16
  } -> tensor<64xbf16>
  return %0 : tensor<64xbf16>
}

// `exp(x) - 1` is recognised across two ops. The exponential itself is expanded if the target asks for it (`exp=true`).
// CHECK-LABEL: func.func @expm1(
// CHECK-SAME: %[[X:.*]]: tensor<64xf32>
// CHECK: linalg.generic {{.*}} ins(%[[X]]
// CHECK: math.exp
// CHECK: linalg.generic {{.*}} ins(%[[X]]
// CHECK: arith.cmpf
// KEPT-LABEL: func.func @expm1(
// KEPT-NOT: math.exp
func.func @expm1(%x: tensor<64xf32>) -> tensor<64xf32> {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = math.exp %a : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  %2 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%0 : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %3 = arith.subf %a, %one : f32
    linalg.yield %3 : f32
  } -> tensor<64xf32>
  return %2 : tensor<64xf32>
}

// A small constant power stays, because IREE itself multiplies.
// CHECK-LABEL: func.func @square(
// CHECK: math.fpowi
func.func @square(%x: tensor<64xf32>) -> tensor<64xf32> {
  %two = arith.constant 2 : i64
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = math.fpowi %a, %two : f32, i64
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// The remainder is computed in integers only, so that it does not depend on how a device rounds floats.
// CHECK-LABEL: func.func @remainder(
// CHECK-NOT: arith.remf
// CHECK-COUNT-40: arith.muli
// CHECK-NOT: arith.muli
// KEPT-LABEL: func.func @remainder(
// KEPT: arith.remf
func.func @remainder(%x: tensor<64xf16>, %y: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %0 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<64xf16>, tensor<64xf16>) outs(%e : tensor<64xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16):
    %1 = arith.remf %a, %b : f16
    linalg.yield %1 : f16
  } -> tensor<64xf16>
  return %0 : tensor<64xf16>
}

// Truncation is expanded only for targets without an instruction for it (`trunc=true`).
// CHECK-LABEL: func.func @trunc(
// CHECK: math.trunc
// TRUNC-LABEL: func.func @trunc(
// TRUNC-NOT: math.trunc
// TRUNC: arith.fptosi
// TRUNC: arith.select
func.func @trunc(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = math.trunc %a : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
