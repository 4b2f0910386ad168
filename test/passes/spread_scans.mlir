// RUN: qmlir-opt %s --pass-pipeline='qmlir-spread-scans{subgroup=64}' | filecheck %s

// CHECK: #[[SUBGROUP:.*]] = #iree_codegen.translation_info<{{.*}}<TileAndFuse> workgroup_size = [64, 1, 1] subgroup_size = 64>
// CHECK: #[[MIDDLE:.*]] = #iree_codegen.compilation_info<{{.*}}<{thread = [1, 0, 1], workgroup = [1, 0, 40]}>, translation_info = #[[SUBGROUP]]>
// CHECK: #[[ROWS:.*]] = #iree_codegen.compilation_info<{{.*}}<{thread = [1, 0], workgroup = [64, 0]}>, translation_info = #[[SUBGROUP]]>

// A scan along the middle axis: 40 lines, which are neighbours along the last axis, get one thread each.
// CHECK-LABEL: func.func @middle(
// CHECK: iree_linalg_ext.scan {compilation_info = #[[MIDDLE]]}
func.func @middle(%x: tensor<2x7x40xi64>, %to: tensor<2x7x40xi64>, %from: tensor<2x40xi64>) -> tensor<2x7x40xi64> {
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<2x7x40xi64>) outs(%to, %from : tensor<2x7x40xi64>, tensor<2x40xi64>) {
    ^bb0(%a: i64, %b: i64):
      %s = arith.addi %a, %b : i64
      iree_linalg_ext.yield %s : i64
  } -> tensor<2x7x40xi64>, tensor<2x40xi64>
  return %r#0 : tensor<2x7x40xi64>
}

// A dynamic number of lines: each workgroup takes 64 of them.
// CHECK-LABEL: func.func @rows(
// CHECK: iree_linalg_ext.scan {compilation_info = #[[ROWS]]}
func.func @rows(%x: tensor<?x7xf32>, %to: tensor<?x7xf32>, %from: tensor<?xf32>) -> tensor<?x7xf32> {
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<?x7xf32>) outs(%to, %from : tensor<?x7xf32>, tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      iree_linalg_ext.yield %s : f32
  } -> tensor<?x7xf32>, tensor<?xf32>
  return %r#0 : tensor<?x7xf32>
}

// Unchanged: a single line has one thread in any case.
// CHECK-LABEL: func.func @line(
// CHECK-NOT: compilation_info
// CHECK: return
func.func @line(%x: tensor<7xf32>, %to: tensor<7xf32>, %from: tensor<f32>) -> tensor<7xf32> {
  %r:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%x : tensor<7xf32>) outs(%to, %from : tensor<7xf32>, tensor<f32>) {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      iree_linalg_ext.yield %s : f32
  } -> tensor<7xf32>, tensor<f32>
  return %r#0 : tensor<7xf32>
}
