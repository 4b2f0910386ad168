// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-check-indices' | filecheck %s

#at = affine_map<(d0) -> (d0)>

// The squares of an argument's elements index a table: the program counts the squares that are outside of it.
// CHECK-LABEL: func.func @squares(
// CHECK: %[[INDEX:.*]] = linalg.generic
// CHECK: arith.muli
// CHECK: %[[COMPARED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "compared"} %[[INDEX]]
// CHECK: %[[WRONG:.*]] = linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%[[COMPARED]] : tensor<6xi32>)
// CHECK: arith.cmpi slt
// CHECK: arith.cmpi sgt
// CHECK: %[[COUNT:.*]] = tensor.extract %[[WRONG]][]
// CHECK: %[[NONE:.*]] = arith.cmpi eq, %[[COUNT]]
// CHECK: cf.assert %[[NONE]], "a computed index is outside of the axis of 5 elements that it is for (
// CHECK: tensor.extract
func.func @squares(%x: tensor<6xi32>, %t: tensor<5xf32>) -> tensor<6xf32> {
  %e = tensor.empty() : tensor<6xi32>
  %p = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]} ins(%x : tensor<6xi32>) outs(%e : tensor<6xi32>) {
  ^bb0(%a: i32, %c: i32):
    %s = arith.muli %a, %a : i32
    linalg.yield %s : i32
  } -> tensor<6xi32>
  %q = tensor.empty() : tensor<6xf32>
  %r = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]} ins(%p : tensor<6xi32>) outs(%q : tensor<6xf32>) {
  ^bb0(%a: i32, %c: f32):
    %i = arith.index_cast %a : i32 to index
    %v = tensor.extract %t[%i] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<6xf32>
  return %r : tensor<6xf32>
}

// -----

#at = affine_map<(d0) -> (d0)>

// Not checked: remainders by 5, which are inside, and elements of an argument, which are checked before the call.
// CHECK-LABEL: func.func @inside(
// CHECK-NOT: cf.assert
// CHECK: return
func.func @inside(%x: tensor<6xi32>, %t: tensor<5xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %five = arith.constant 5 : i32
  %e = tensor.empty() : tensor<6xi32>
  %p = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]} ins(%x : tensor<6xi32>) outs(%e : tensor<6xi32>) {
  ^bb0(%a: i32, %c: i32):
    %w = arith.remsi %a, %five : i32
    %b = arith.addi %w, %five : i32
    %s = arith.remui %b, %five : i32
    linalg.yield %s : i32
  } -> tensor<6xi32>
  %q = tensor.empty() : tensor<6xf32>
  %r = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]} ins(%p : tensor<6xi32>) outs(%q : tensor<6xf32>) {
  ^bb0(%a: i32, %c: f32):
    %i = arith.index_cast %a : i32 to index
    %v = tensor.extract %t[%i] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<6xf32>
  %d = linalg.generic {indexing_maps = [#at, #at], iterator_types = ["parallel"]} ins(%x : tensor<6xi32>) outs(%q : tensor<6xf32>) {
  ^bb0(%a: i32, %c: f32):
    %i = arith.index_cast %a : i32 to index
    %v = tensor.extract %t[%i] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<6xf32>
  return %r, %d : tensor<6xf32>, tensor<6xf32>
}

// -----

// A scatter writes to the positions that its indices name, here squares: these are checked too.
// CHECK-LABEL: func.func @written(
// CHECK: cf.assert {{.*}} "a computed index is outside of the axis of 8 elements
// CHECK: iree_linalg_ext.scatter
func.func @written(%out: tensor<8xf32>, %new: tensor<3xf32>, %x: tensor<3x1xi32>) -> tensor<8xf32> {
  %p = arith.muli %x, %x : tensor<3x1xi32>
  %r = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%new, %p : tensor<3xf32>, tensor<3x1xi32>) outs(%out : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// An element of an argument gives the number of positions, so no size of an argument bounds it: the number is checked.
// CHECK-LABEL: func.func @walked(
// CHECK: tensor.dim
// CHECK: %[[FITS:.*]] = arith.cmpi ule
// CHECK: cf.assert %[[FITS]], "there are more than the 5 positions that a table is for (
// CHECK: tensor.extract %arg1
func.func @walked(%n: tensor<i64>, %t: tensor<5xf32>) -> tensor<?xf32> {
  %wide = tensor.extract %n[] : tensor<i64>
  %count = arith.index_cast %wide : i64 to index
  %e = tensor.empty(%count) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<?xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %v = tensor.extract %t[%i] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
