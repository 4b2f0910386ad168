// RUN: qmlir-opt --split-input-file --pass-pipeline='qmlir-select{target=cpu:znver4}' %s | filecheck %s
// A contraction that no kernel accepts stays a linalg op.

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Its accumulator starts from values other than zero.
// CHECK-LABEL: func.func @accumulates
// CHECK: linalg.generic
func.func @accumulates(%x: tensor<20x8xi8>, %w: tensor<20x8xi8>, %init: tensor<20x20xi32>) -> tensor<20x20xi32> {
  %r = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<20x8xi8>, tensor<20x8xi8>) outs(%init : tensor<20x20xi32>) {
  ^bb0(%p: i8, %q: i8, %acc: i32):
    %a = arith.extsi %p : i8 to i32
    %b = arith.extsi %q : i8 to i32
    %c = arith.muli %a, %b : i32
    %t = arith.addi %acc, %c : i32
    linalg.yield %t : i32
  } -> tensor<20x20xi32>
  return %r : tensor<20x20xi32>
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Unsigned codes that have not been biased to signed codes.
// CHECK-LABEL: func.func @unsigned
// CHECK: linalg.generic
func.func @unsigned(%x: tensor<20x8xi8>, %w: tensor<20x8xi8>) -> tensor<20x20xi32> {
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<20x20xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%e : tensor<20x20xi32>) -> tensor<20x20xi32>
  %r = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<20x8xi8>, tensor<20x8xi8>) outs(%fill : tensor<20x20xi32>) {
  ^bb0(%p: i8, %q: i8, %acc: i32):
    %a = arith.extui %p : i8 to i32
    %b = arith.extsi %q : i8 to i32
    %c = arith.muli %a, %b : i32
    %t = arith.addi %acc, %c : i32
    linalg.yield %t : i32
  } -> tensor<20x20xi32>
  return %r : tensor<20x20xi32>
}
