// RUN: qmlir-opt %s --pass-pipeline='qmlir-exact-divisions' | filecheck %s

#map = affine_map<(i) -> (i)>

// The device divides the significands; the rest of the division is integer arithmetic.
// CHECK-LABEL: func.func @quotient(
// CHECK: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK: arith.bitcast %[[A]] : f32 to i32
// CHECK: arith.bitcast %[[B]] : f32 to i32
// CHECK: %[[NEAR:.*]] = arith.divf
// CHECK: arith.fptosi %[[NEAR]] : f32 to i32
// CHECK-NOT: arith.divf
// CHECK: %[[RESULT:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK: linalg.yield %[[RESULT]] : f32
func.func @quotient(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.divf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// f16 and bf16 are divided in f32; the division of f64 uses words of 64 bits.
// CHECK-LABEL: func.func @other_types(
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: arith.divf %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: arith.divf %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: arith.divf %{{.*}} : f64
// CHECK: arith.muli %{{.*}} : i64
func.func @other_types(%x: tensor<64xf16>, %y: tensor<64xbf16>, %z: tensor<64xf64>)
    -> (tensor<64xf16>, tensor<64xbf16>, tensor<64xf64>) {
  %0:3 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
      outs(%x, %y, %z : tensor<64xf16>, tensor<64xbf16>, tensor<64xf64>) {
  ^bb0(%a: f16, %b: bf16, %c: f64):
    %1 = arith.divf %a, %a : f16
    %2 = arith.divf %b, %b : bf16
    %3 = arith.divf %c, %c : f64
    linalg.yield %1, %2, %3 : f16, bf16, f64
  } -> (tensor<64xf16>, tensor<64xbf16>, tensor<64xf64>)
  return %0#0, %0#1, %0#2 : tensor<64xf16>, tensor<64xbf16>, tensor<64xf64>
}

// A division of whole tensors is corrected too.
// CHECK-LABEL: func.func @tensors(
// CHECK: linalg.generic
// CHECK: arith.divf %{{.*}} : f32
// CHECK: arith.fptosi
// CHECK-NOT: arith.divf
// CHECK: return
func.func @tensors(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = arith.divf %x, %y : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}

// A division by a power of two becomes a product, unless a device may flush the inverse to 0.
// CHECK-LABEL: func.func @power_of_two(
// CHECK-NOT: arith.divf
// CHECK: %[[INVERSE:.*]] = arith.constant -2.500000e-01 : f32
// CHECK: arith.mulf %{{.*}}, %[[INVERSE]] : f32
// CHECK-NOT: arith.fptosi
// CHECK: return
func.func @power_of_two(%x: tensor<64xf32>) -> tensor<64xf32> {
  %four = arith.constant -4.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %c: f32):
    %1 = arith.divf %a, %four : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// CHECK-LABEL: func.func @large_power_of_two(
// CHECK: arith.divf
// CHECK: arith.fptosi
func.func @large_power_of_two(%x: tensor<64xf32>) -> tensor<64xf32> {
  %large = arith.constant 0x7F000000 : f32
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %c: f32):
    %1 = arith.divf %a, %large : f32
    linalg.yield %1 : f32
  } -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// Unchanged: a sigmoid, which is approximated in any case, and a scalar division on the host, which is exact.
// CHECK-LABEL: func.func @stays(
// CHECK: arith.divf %arg1, %arg2 : f32
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: arith.divf %{{.*}}, %[[SUM]] : f32
// CHECK-NOT: arith.fptosi
// CHECK: return
func.func @stays(%x: tensor<64xf32>, %y: f32, %z: f32) -> (tensor<64xf32>, f32) {
  %one = arith.constant 1.0 : f32
  %q = arith.divf %y, %z : f32
  %e = tensor.empty() : tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %c: f32):
    %1 = arith.negf %a : f32
    %2 = math.exp %1 : f32
    %3 = arith.addf %one, %2 : f32
    %4 = arith.divf %one, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<64xf32>
  return %0, %q : tensor<64xf32>, f32
}
