// RUN: qmlir-opt %s --pass-pipeline=qmlir-bf16-as-bits | filecheck %s

#id = affine_map<(m) -> (m)>

// The bits of the f32 are rounded to nearest, ties to even; a NaN stays a NaN, with the quiet bit set.
// CHECK-LABEL: func.func @rounds(
// CHECK: tensor.empty(%{{.*}}) : tensor<?xi16>
// CHECK: linalg.generic
// CHECK: ^bb0(%[[X:.*]]: f32, %{{.*}}: i16):
// CHECK: %[[Y:.*]] = arith.addf %[[X]], %[[X]]
// CHECK: arith.bitcast %[[Y]] : f32 to i32
// CHECK: arith.constant 32767 : i32
// CHECK: arith.cmpf uno, %[[Y]], %[[Y]]
// CHECK: arith.select
// CHECK: arith.trunci %{{.*}} : i32 to i16
// CHECK: flow.tensor.bitcast %{{.*}} : tensor<?xi16>{%{{.*}}} -> tensor<?xbf16>{%{{.*}}}
func.func @rounds(%x: tensor<?xf32>, %init: tensor<?xbf16>) -> tensor<?xbf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%init : tensor<?xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %1 = arith.addf %a, %a : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<?xbf16>
  return %0 : tensor<?xbf16>
}

// Results of other types are left alone.
// CHECK-LABEL: func.func @half(
// CHECK: arith.truncf
// CHECK-NOT: flow.tensor.bitcast
func.func @half(%x: tensor<4xf32>, %init: tensor<4xf16>) -> tensor<4xf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%init : tensor<4xf16>) {
  ^bb0(%a: f32, %o: f16):
    %1 = arith.truncf %a : f32 to f16
    linalg.yield %1 : f16
  } -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// A bf16 operand that is only extended to f32 is read as i16 bits, the upper half of the f32.
// CHECK-LABEL: func.func @extends(
// CHECK-SAME: %[[X:.*]]: tensor<?xbf16>
// CHECK: %[[BITS:.*]] = flow.tensor.bitcast %[[X]] : tensor<?xbf16>{%{{.*}}} -> tensor<?xi16>{%{{.*}}}
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[BITS]] : tensor<?xi16>)
// CHECK: ^bb0(%[[A:.*]]: i16, %{{.*}}: f32):
// CHECK: arith.extui %[[A]] : i16 to i32
// CHECK: arith.shli
// CHECK: arith.bitcast %{{.*}} : i32 to f32
// CHECK-NOT: arith.extf
func.func @extends(%x: tensor<?xbf16>, %init: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<?xbf16>) outs(%init : tensor<?xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %1 = arith.extf %a : bf16 to f32
    linalg.yield %1 : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// A code is converted to f32, which represents it exactly, and then rounded to bf16.
// CHECK-LABEL: func.func @code(
// CHECK: ^bb0(%[[C:.*]]: i8, %{{.*}}: i16):
// CHECK: arith.sitofp %[[C]] : i8 to f32
// CHECK: flow.tensor.bitcast %{{.*}} : tensor<4xi16> -> tensor<4xbf16>
func.func @code(%x: tensor<4xi8>, %init: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xi8>) outs(%init : tensor<4xbf16>) {
  ^bb0(%a: i8, %o: bf16):
    %1 = arith.sitofp %a : i8 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}
