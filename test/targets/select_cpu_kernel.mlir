// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:znver4}' %s | filecheck %s
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:znver4 prefer=avx-vnni}' %s | filecheck %s --check-prefix=NARROW
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:znver4 prefer=stock}' %s | filecheck %s --check-prefix=STOCK
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:x86-64}' %s | filecheck %s --check-prefix=STOCK
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:x86-64-v3}' %s | filecheck %s --check-prefix=AVX2
// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:sapphirerapids prefer=amx-int8}' %s | filecheck %s --check-prefix=AMX
// RUN: not qmlir-opt --pass-pipeline='qmlir-select{target=cpu:znver4 prefer=avx-vni}' %s 2>&1 | filecheck %s --check-prefix=UNKNOWN

// AVX2: llvm.x86.avx2.pmadd.wd

// UNKNOWN: cpu:znver4 has no strategy 'avx-vni'; did you mean 'avx-vnni'

// A product, its scale and its activation are one executable: the weight packed, the scale read in registers.
// CHECK: stream.executable private @f_product_0
// CHECK: llvm.x86.avx512.vpdpbusd.512
// CHECK: arithmetic.fence
// CHECK-LABEL: func.func @f(
// CHECK-NOT: linalg.generic
// CHECK: %[[W:.+]] = arith.constant dense<{{.*}}> : tensor<1x4x32x4xi8>
// CHECK: %[[TEAM:.+]] = util.global.load @__qmlir_team : i64
// CHECK: flow.dispatch @f_product_0::@f_product_0(%[[TEAM]], %arg0, %[[W]], %arg1)
// CHECK-SAME: (i64, tensor<9x5xi8>, tensor<1x4x32x4xi8>, tensor<9xf32>) -> tensor<9x4xf32>
// NARROW: llvm.x86.avx512.vpdpbusd.256
// NARROW: flow.dispatch
// AMX: inline_asm has_side_effects "syscall"
// AMX: llvm.x86.tdpbssd
// STOCK-NOT: stream.executable
// STOCK: linalg.generic
func.func @f(%x: tensor<9x5xi8>, %s: tensor<9xf32>) -> tensor<9x4xf32> {
  %w = arith.constant dense<[[1, 2, -3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15], [16, 17, 18, 19, -128]]> : tensor<4x5xi8>
  %zero = arith.constant 0 : i32
  %zf = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x4xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%e : tensor<9x4xi32>) -> tensor<9x4xi32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%x, %w : tensor<9x5xi8>, tensor<4x5xi8>) outs(%fill : tensor<9x4xi32>) {
  ^bb0(%p: i8, %q: i8, %acc: i32):
    %a = arith.extsi %p : i8 to i32
    %b = arith.extsi %q : i8 to i32
    %c = arith.muli %a, %b : i32
    %t = arith.addi %acc, %c : i32
    linalg.yield %t : i32
  } -> tensor<9x4xi32>
  %o = tensor.empty() : tensor<9x4xf32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%r, %s : tensor<9x4xi32>, tensor<9xf32>) outs(%o : tensor<9x4xf32>) {
  ^bb0(%v: i32, %scale: f32, %unused: f32):
    %f = arith.sitofp %v : i32 to f32
    %g = arith.mulf %f, %scale : f32
    %h = arith.maximumf %g, %zf : f32
    linalg.yield %h : f32
  } -> tensor<9x4xf32>
  return %y : tensor<9x4xf32>
}
