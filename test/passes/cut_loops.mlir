// RUN: qmlir-opt %s --pass-pipeline='qmlir-cut-loops{longest=63}' --split-input-file --verify-diagnostics | filecheck %s

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

// The second piece starts from the maximum of the first.
// CHECK-LABEL: func.func @long(
// CHECK-SAME: %[[X:.*]]: tensor<2x90xf32>, %[[INIT:.*]]: tensor<2xf32>
// CHECK: %[[A:.*]] = tensor.extract_slice %[[X]][0, 0] [2, 63] [1, 1]
// CHECK: %[[M:.*]] = linalg.generic {{.*}} ins(%[[A]] : tensor<2x63xf32>) outs(%[[INIT]] : tensor<2xf32>)
// CHECK: arith.maximumf
// CHECK: %[[S:.*]] = util.optimization_barrier {qmlir.barrier_reason = "long-sum"} %[[M]]
// CHECK: %[[B:.*]] = tensor.extract_slice %[[X]][0, 63] [2, 27] [1, 1]
// CHECK: %[[N:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<2x27xf32>) outs(%[[S]] : tensor<2xf32>)
// CHECK: return %[[N]]
func.func @long(%x: tensor<2x90xf32>, %init: tensor<2xf32>) -> tensor<2xf32> {
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x90xf32>) outs(%init : tensor<2xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.maximumf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

// The reduced axis is as long as a loop may be; the length of the parallel axis does not count.
// CHECK-LABEL: func.func @short(
// CHECK-NOT: tensor.extract_slice
// CHECK: linalg.generic
func.func @short(%x: tensor<100x63xf32>, %init: tensor<100xf32>) -> tensor<100xf32> {
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<100x63xf32>) outs(%init : tensor<100xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.maximumf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<100xf32>
  return %0 : tensor<100xf32>
}

// -----

#in = affine_map<(m, k) -> (m, k)>
#all = affine_map<(m, k) -> ()>

// Both loops are reduced: the longer one is cut, so that a piece has at most 7 * 9 elements.
// CHECK-LABEL: func.func @both(
// CHECK: tensor.extract_slice %{{.*}}[0, 0] [7, 9] [1, 1]
// CHECK: tensor.extract_slice %{{.*}}[0, 9] [7, 3] [1, 1]
// CHECK-NOT: tensor.extract_slice
func.func @both(%x: tensor<7x12xf32>, %init: tensor<f32>) -> tensor<f32> {
  %0 = linalg.generic {indexing_maps = [#in, #all], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<7x12xf32>) outs(%init : tensor<f32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.addf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

// A contraction is cut into pieces along K, in ascending order.
// CHECK-LABEL: func.func @contraction(
// CHECK: %[[P:.*]] = linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<2x63xf32>, tensor<63x3xf32>)
// CHECK: linalg.matmul ins(%{{.*}}, %{{.*}} : tensor<2x1xf32>, tensor<1x3xf32>) outs(%[[P]] : tensor<2x3xf32>)
func.func @contraction(%a: tensor<2x64xf32>, %b: tensor<64x3xf32>, %c: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<2x64xf32>, tensor<64x3xf32>) outs(%c : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

func.func @asks_for_its_index(%x: tensor<2x64xf32>, %init: tensor<2xindex>) -> tensor<2xindex> {
  // expected-error @+1 {{a reduction over 64 elements is longer than the loops of this device, which stop after 63; reduce rows or groups instead of the whole tensor}}
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x64xf32>) outs(%init : tensor<2xindex>) {
  ^bb0(%a: f32, %acc: index):
    %1 = linalg.index 1 : index
    %2 = arith.maxsi %1, %acc : index
    linalg.yield %2 : index
  } -> tensor<2xindex>
  return %0 : tensor<2xindex>
}

// -----

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

// A reduction of 65 pieces is refused (the limit is 64), because each piece is a separate op.
func.func @far_too_long(%x: tensor<2x4033xf32>, %init: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{a reduction over 4033 elements is longer than the loops of this device, which stop after 63; reduce rows or groups instead of the whole tensor}}
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x4033xf32>) outs(%init : tensor<2xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.addf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

#in = affine_map<(m, k) -> (m, k)>
#out = affine_map<(m, k) -> (m)>

// A sum of dynamic size: the program checks its length at run time, and refuses the call if it is too long.
// CHECK-LABEL: func.func @dynamic(
// CHECK: tensor.dim %arg0
// CHECK: %[[FITS:.*]] = arith.cmpi ule, %{{.*}}, %c63
// CHECK: cf.assert %[[FITS]], "a sum is longer than the 63 elements that a loop of this device can have"
// CHECK: linalg.generic
func.func @dynamic(%x: tensor<2x?xf32>, %init: tensor<2xf32>) -> tensor<2xf32> {
  %0 = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x?xf32>) outs(%init : tensor<2xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %1 = arith.addf %a, %acc : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// A sort compares all pairs: 8 * 7 steps are accepted, 9 * 8 are not.
// CHECK-LABEL: func.func @sorted(
// CHECK-NOT: cf.assert
// CHECK: return
func.func @sorted(%x: tensor<100x8xf32>) -> tensor<100x8xf32> {
  %0 = iree_linalg_ext.sort dimension(1) outs(%x : tensor<100x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<100x8xf32>
  return %0 : tensor<100x8xf32>
}

// -----

func.func @sorted_long(%x: tensor<9xf32>) -> tensor<9xf32> {
  // expected-error @+1 {{a sort of 9 elements: loops of this device stop after 63 steps, and a sort takes at most 8 elements}}
  %0 = iree_linalg_ext.sort dimension(0) outs(%x : tensor<9xf32>) {
  ^bb0(%a: f32, %b: f32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<9xf32>
  return %0 : tensor<9xf32>
}

// -----

// CHECK-LABEL: func.func @counted(
// CHECK: cf.assert %{{.*}}, "a scan along axis 0: loops of this device stop after 63 steps, and a scan takes at most 63 elements"
// CHECK: iree_linalg_ext.scan
func.func @counted(%x: tensor<?xi32>, %out: tensor<?xi32>, %last: tensor<i32>) -> tensor<?xi32> {
  %0:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%x : tensor<?xi32>) outs(%out, %last : tensor<?xi32>, tensor<i32>) {
  ^bb0(%a: i32, %b: i32):
    %s = arith.addi %a, %b : i32
    iree_linalg_ext.yield %s : i32
  } -> tensor<?xi32>, tensor<i32>
  return %0#0 : tensor<?xi32>
}
