// RUN: qmlir-opt --pass-pipeline='qmlir-select{target=cpu:znver4}' %s | filecheck %s

util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4x5xi8>
util.global private mutable @state = #flow.parameter.named<"model"::"state"> : tensor<4x5xi8>

// A weight that never changes is packed by an initialiser; the kernel reads the packed weight.
// CHECK: util.global private @[[NAME:packed_.+]] : tensor<1x4x32x4xi8>
// CHECK: util.initializer {
// CHECK: %[[CODES:.+]] = util.global.load @w : tensor<4x5xi8>
// CHECK: %[[BIASED:.+]] = linalg.generic {{.*}} ins(%[[CODES]] : tensor<4x5xi8>)
// CHECK: %[[PADDED:.+]] = tensor.pad %[[BIASED]]
// CHECK: util.global.store %{{.+}}, @[[NAME]]
// CHECK-LABEL: func.func @once(
// CHECK-NOT: tensor.pad
// CHECK: %[[W:.+]] = util.global.load @[[NAME]] : tensor<1x4x32x4xi8>
// CHECK: flow.dispatch @once_product_0::@once_product_0(%{{.+}}, %arg0, %[[W]])
func.func @once(%x: tensor<9x5xi8>) -> tensor<9x4xi32> {
  %w = util.global.load @w : tensor<4x5xi8>
  %zero = arith.constant 0 : i32
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
  return %r : tensor<9x4xi32>
}

// A mutable global may differ from call to call, and to pack it in each call does not pay off for nine rows.
// CHECK-LABEL: func.func @each(
// CHECK: util.global.load @state
// CHECK: linalg.generic
func.func @each(%x: tensor<9x5xi8>) -> tensor<9x4xi32> {
  %w = util.global.load @state : tensor<4x5xi8>
  %zero = arith.constant 0 : i32
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
  return %r : tensor<9x4xi32>
}
