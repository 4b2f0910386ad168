// RUN: qmlir-opt %s --pass-pipeline=qmlir-store-wide | filecheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @converted_inside(
// CHECK-SAME: %[[X:.*]]: tensor<16x64xf32>
// CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<16x64xf32>) outs(%{{.*}} : tensor<16x64xf64>)
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "wide-sum"} %[[WIDE]]
// CHECK: linalg.generic {{.*}} ins(%[[STORED]] : tensor<16x64xf64>)
// CHECK: ^bb0(%[[IN:.*]]: f64, %[[ACC:.*]]: f64):
// CHECK: arith.addf %[[ACC]], %[[IN]] : f64
func.func @converted_inside(%x: tensor<16x64xf32>, %start: tensor<16xf64>) -> tensor<16xf64> {
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x64xf32>) outs(%start : tensor<16xf64>) {
  ^bb0(%in: f32, %acc: f64):
    %1 = arith.extf %in : f32 to f64
    %2 = arith.addf %acc, %1 : f64
    linalg.yield %2 : f64
  } -> tensor<16xf64>
  return %0 : tensor<16xf64>
}

// Other uses in the body get the value truncated to the shorter type.
// CHECK-LABEL: func.func @with_another_reader(
// CHECK: linalg.generic
// CHECK: arith.extui %{{.*}} : i8 to i64
// CHECK: util.optimization_barrier
// CHECK: ^bb0(%[[IN:.*]]: i64, %[[ACC:.*]]: i64):
// CHECK: %[[SHORT:.*]] = arith.trunci %[[IN]] : i64 to i8
// CHECK: arith.cmpi sgt, %[[SHORT]],
// CHECK: arith.select %{{.*}}, %[[IN]],
func.func @with_another_reader(%x: tensor<16x64xi8>, %start: tensor<16xi64>) -> tensor<16xi64> {
  %zero = arith.constant 0 : i8
  %none = arith.constant 0 : i64
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x64xi8>) outs(%start : tensor<16xi64>) {
  ^bb0(%in: i8, %acc: i64):
    %above = arith.cmpi sgt, %in, %zero : i8
    %1 = arith.extui %in : i8 to i64
    %2 = arith.select %above, %1, %none : i64
    %3 = arith.addi %acc, %2 : i64
    linalg.yield %3 : i64
  } -> tensor<16xi64>
  return %0 : tensor<16xi64>
}

// If another op converts the operand, the barrier is behind that op.
// CHECK-LABEL: func.func @converted_before(
// CHECK: %[[WIDE:.*]] = linalg.generic
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "wide-sum"} %[[WIDE]]
// CHECK-NOT: linalg.generic {{.*}} outs(%{{.*}} : tensor<16x64xf64>)
func.func @converted_before(%x: tensor<16x64xf32>, %start: tensor<16xf64>) -> tensor<16xf64> {
  %e = tensor.empty() : tensor<16x64xf64>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<16x64xf32>) outs(%e : tensor<16x64xf64>) {
  ^bb0(%in: f32, %out: f64):
    %1 = arith.extf %in : f32 to f64
    linalg.yield %1 : f64
  } -> tensor<16x64xf64>
  %0 = linalg.reduce { arith.addf } ins(%wide : tensor<16x64xf64>) outs(%start : tensor<16xf64>) dimensions = [1]
  return %0 : tensor<16xf64>
}

// Unchanged: an operand that is read in 64 bits, and 32-bit sums.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT: barrier
// CHECK: return
func.func @stays(%x: tensor<16x64xf64>, %start: tensor<16xf64>, %y: tensor<16x64xf16>, %s: tensor<16xf32>)
    -> (tensor<16xf64>, tensor<16xf32>) {
  %e = tensor.empty() : tensor<16x64xf64>
  %less = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<16x64xf64>) outs(%e : tensor<16x64xf64>) {
  ^bb0(%in: f64, %out: f64):
    %1 = arith.negf %in : f64
    linalg.yield %1 : f64
  } -> tensor<16x64xf64>
  %0 = linalg.reduce { arith.addf } ins(%less : tensor<16x64xf64>) outs(%start : tensor<16xf64>) dimensions = [1]
  %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<16x64xf16>) outs(%s : tensor<16xf32>) {
  ^bb0(%in: f16, %acc: f32):
    %2 = arith.extf %in : f16 to f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<16xf32>
  return %0, %1 : tensor<16xf64>, tensor<16xf32>
}

// Unchanged: fewer elements than a subgroup has lanes are not reduced across lanes.
// CHECK-LABEL: func.func @few(
// CHECK-NOT: barrier
// CHECK: return
func.func @few(%x: tensor<16x8xi32>, %start: tensor<16xi64>) -> tensor<16xi64> {
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x8xi32>) outs(%start : tensor<16xi64>) {
  ^bb0(%in: i32, %acc: i64):
    %1 = arith.extsi %in : i32 to i64
    %2 = arith.addi %acc, %1 : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  return %0 : tensor<16xi64>
}

// If a size is dynamic, the sum is stored for the op that reads it.
// CHECK-LABEL: func.func @dynamic(
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"reduction"
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "wide-sum"} %[[SUM]]
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<16x?xf64>, tensor<16xf64>)
func.func @dynamic(%x: tensor<16x?xf64>, %start: tensor<16xf64>) -> tensor<16x?xf64> {
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x?xf64>) outs(%start : tensor<16xf64>) {
  ^bb0(%in: f64, %acc: f64):
    %2 = arith.addf %acc, %in : f64
    linalg.yield %2 : f64
  } -> tensor<16xf64>
  %1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %0 : tensor<16x?xf64>, tensor<16xf64>) outs(%x : tensor<16x?xf64>) {
  ^bb0(%a: f64, %b: f64, %out: f64):
    %2 = arith.subf %a, %b : f64
    linalg.yield %2 : f64
  } -> tensor<16x?xf64>
  return %1 : tensor<16x?xf64>
}
