// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse,qmlir-row-kernels{target=cpu:znver4}' | filecheck %s --check-prefix=KERNEL
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse,qmlir-row-kernels{target=cpu:x86-64}' | filecheck %s --check-prefix=PLAIN
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse,qmlir-row-kernels{target=cuda:sm_80}' | filecheck %s --check-prefix=PLAIN
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse,qmlir-row-kernels{target=vulkan:ada}' | filecheck %s --check-prefix=GPU
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-verify,qmlir-lower-to-linalg,canonicalize,cse,qmlir-row-kernels{target=rocm:gfx942}' | filecheck %s --check-prefix=LARGEST

// The codes and scales of a dynamic quantisation are one dispatch; the reshape of the scale stays outside.
// KERNEL: stream.executable private @quantised_rows_0
// KERNEL-LABEL: func.func @quantised(
// KERNEL-NOT: linalg.generic
// KERNEL: %[[R:.*]]:2 = flow.dispatch @quantised_rows_0::@quantised_rows_0[%{{.*}}](%{{.*}}, %{{.*}}, %arg0)
// KERNEL: tensor.expand_shape %[[R]]#
// PLAIN-LABEL: func.func @quantised(
// PLAIN-NOT: flow.dispatch
// GPU: hal.executable.source private @quantised_rows_0
// GPU-LABEL: func.func @quantised(
// GPU-NOT: linalg.generic
// GPU: %[[R:.*]]:2 = flow.dispatch @quantised_rows_0::@quantised_rows_0[%{{.*}}](%{{.*}}, %arg0)
// LARGEST: flow.dispatch @quantised_rows_0::@quantised_rows_0
func.func @quantised(%input: tensor<?x64xf32>) -> (tensor<?x64xi8>, tensor<?x1xf32>) {
  %0:2 = "qmlir.dynamic_quantize"(%input) : (tensor<?x64xf32>) -> (tensor<?x64xi8>, tensor<?x1xf32>)
  return %0#0, %0#1 : tensor<?x64xi8>, tensor<?x1xf32>
}

// -----

#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#col = affine_map<(m, n) -> (n)>

// The elementwise ops in front of and behind a sum are in its kernel, which returns both results.
// KERNEL: stream.executable private @normed_rows_0
// KERNEL-LABEL: func.func @normed(
// KERNEL-NOT: linalg.generic
// KERNEL: flow.dispatch @normed_rows_0::@normed_rows_0(%{{.*}}, %arg0, %arg1)
// KERNEL-NOT: linalg.generic
// PLAIN-LABEL: func.func @normed(
// PLAIN-NOT: flow.dispatch
// GPU-LABEL: func.func @normed(
// GPU-NOT: linalg.generic
// GPU: flow.dispatch @normed_rows_0::@normed_rows_0(%arg0, %arg1)
// On AMD, sums are left to IREE.
// LARGEST-LABEL: func.func @normed(
// LARGEST-NOT: flow.dispatch
func.func @normed(%x: tensor<4x32xf32>, %g: tensor<32xf32>) -> (tensor<4x32xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x32xf32>
  %r = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<4xf32>) -> tensor<4xf32>
  %sq = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.mulf %a, %a : f32
    linalg.yield %v : f32
  } -> tensor<4x32xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%sq : tensor<4x32xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #col, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %s, %g : tensor<4x32xf32>, tensor<4xf32>, tensor<32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %v = arith.divf %a, %b : f32
    %w = arith.mulf %v, %c : f32
    linalg.yield %w : f32
  } -> tensor<4x32xf32>
  return %y, %s : tensor<4x32xf32>, tensor<4xf32>
}

// -----

#id = affine_map<(m, n) -> (m, n)>
#t = affine_map<(m, n) -> (n, m)>
#row = affine_map<(m, n) -> (m)>

// An op that also reads the kernel's results through an op outside of the kernel is not part of the kernel.
// KERNEL-LABEL: func.func @around(
// KERNEL: flow.dispatch @around_rows_0
// KERNEL: linalg.generic
// KERNEL: arith.addf
// KERNEL: return
// PLAIN-LABEL: func.func @around(
func.func @around(%x: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x32xf32>
  %r = tensor.empty() : tensor<32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<32xf32>) -> tensor<32xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<32x32xf32>) outs(%f : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<32xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<32x32xf32>, tensor<32xf32>) outs(%e : tensor<32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.mulf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<32x32xf32>
  %z = linalg.generic {indexing_maps = [#t, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%y, %y : tensor<32x32xf32>, tensor<32x32xf32>) outs(%e : tensor<32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.addf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<32x32xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%z, %s : tensor<32x32xf32>, tensor<32xf32>) outs(%e : tensor<32x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.addf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<32x32xf32>
  return %w : tensor<32x32xf32>
}

// -----

#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>

// Rows of dynamic length, and rows shorter than a vector, stay.
// KERNEL-LABEL: func.func @stays(
// KERNEL-NOT: flow.dispatch
// PLAIN-LABEL: func.func @stays(
func.func @stays(%x: tensor<4x?xf32>, %y: tensor<4x7xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %r = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x?xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<4xf32>
  %u = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%y : tensor<4x7xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<4xf32>
  return %s, %u : tensor<4xf32>, tensor<4xf32>
}

// -----

// A gather that reads a value of the group in its body is moved behind the kernel too.
// KERNEL-LABEL: func.func @gathered(
// KERNEL: %[[R:.*]]:2 = flow.dispatch @gathered_rows_0::@gathered_rows_0(
// KERNEL: linalg.generic
// KERNEL: tensor.extract %[[R]]#
// PLAIN-LABEL: func.func @gathered(
// GPU-LABEL: func.func @gathered(
// LARGEST-LABEL: func.func @gathered(
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
func.func @gathered(%x: tensor<4x32xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x32xf32>
  %r = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%r : tensor<4xf32>) -> tensor<4xf32>
  %sq = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.mulf %a, %a : f32
    linalg.yield %v : f32
  } -> tensor<4x32xf32>
  %g = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x32xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 1 : index
    %c0 = arith.constant 0 : index
    %v = tensor.extract %sq[%c0, %i] : tensor<4x32xf32>
    linalg.yield %v : f32
  } -> tensor<4x32xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%sq : tensor<4x32xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.addf %o, %a : f32
    linalg.yield %v : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%sq, %s : tensor<4x32xf32>, tensor<4xf32>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.divf %a, %b : f32
    linalg.yield %v : f32
  } -> tensor<4x32xf32>
  return %y, %g : tensor<4x32xf32>, tensor<4x32xf32>
}
