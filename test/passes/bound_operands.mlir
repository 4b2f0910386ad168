// RUN: qmlir-opt %s --pass-pipeline='qmlir-bound-operands{most=3}' | filecheck %s

// A sum of four tensors with `most=3`: a fusion barrier separates the sum of the first three.
// CHECK-LABEL: func.func @sum(
// CHECK: arith.addf
// CHECK: %[[THREE:.*]] = arith.addf
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "many-operands"} %[[THREE]]
// CHECK: arith.addf %[[STORED]], %{{.*}}
func.func @sum(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>, %d: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %b : tensor<4xf32>
  %1 = arith.addf %0, %c : tensor<4xf32>
  %2 = arith.addf %1, %d : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// Three tensors, one of which is read twice, and a splat constant are within the bound.
// CHECK-LABEL: func.func @few(
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @few(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>) -> tensor<4xf32> {
  %half = arith.constant dense<0.5> : tensor<4xf32>
  %0 = arith.addf %a, %b : tensor<4xf32>
  %1 = arith.mulf %0, %half : tensor<4xf32>
  %2 = arith.addf %1, %a : tensor<4xf32>
  %3 = arith.addf %2, %c : tensor<4xf32>
  return %3 : tensor<4xf32>
}

// A value with two readers counts as one more tensor; a value that is computed from constants only counts as one.
// CHECK-LABEL: func.func @shared(
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "many-operands"} %[[SUM]]
// CHECK: %[[SCALED:.*]] = arith.mulf %[[STORED]], %{{.*}}
// CHECK: arith.mulf %[[SCALED]], %[[STORED]]
// CHECK: return
func.func @shared(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %numbers = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %0 = arith.addf %a, %b : tensor<4xf32>
  %once = math.exp %numbers : tensor<4xf32>
  %1 = arith.mulf %0, %once : tensor<4xf32>
  %2 = arith.mulf %1, %0 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
