// RUN: qmlir-opt %s --pass-pipeline=qmlir-store-pooled | filecheck %s

// A pooling of ones.
// CHECK-LABEL: func.func @filled(
// CHECK: %[[ONES:.*]] = linalg.fill
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "pooled-number"} %[[ONES]]
// CHECK: linalg.pooling_nchw_sum {{.*}} ins(%[[STORED]],
func.func @filled(%o: tensor<1x1x2x2xf32>, %e: tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32> {
  %one = arith.constant 1.0 : f32
  %window = tensor.empty() : tensor<2x2xf32>
  %ones = linalg.fill ins(%one : f32) outs(%e : tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  %count = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%ones, %window : tensor<1x1x4x4xf32>, tensor<2x2xf32>) outs(%o : tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  return %count : tensor<1x1x2x2xf32>
}

// A scalar that is broadcast.
// CHECK-LABEL: func.func @repeated(
// CHECK: %[[ONES:.*]] = linalg.broadcast
// CHECK: util.optimization_barrier {qmlir.barrier_reason = "pooled-number"} %[[ONES]]
func.func @repeated(%x: tensor<f32>, %o: tensor<1x1x2x2xf32>, %e: tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32> {
  %window = tensor.empty() : tensor<2x2xf32>
  %same = linalg.broadcast ins(%x : tensor<f32>) outs(%e : tensor<1x1x4x4xf32>) dimensions = [0, 1, 2, 3]
  %sum = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%same, %window : tensor<1x1x4x4xf32>, tensor<2x2xf32>) outs(%o : tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  return %sum : tensor<1x1x2x2xf32>
}

// Unchanged: an operand with other elements, and one that is broadcast along the columns only.
// CHECK-LABEL: func.func @stays(
// CHECK-NOT: barrier
// CHECK: return
func.func @stays(%x: tensor<1x1x4x4xf32>, %row: tensor<1x1x4xf32>, %o: tensor<1x1x2x2xf32>)
    -> (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) {
  %window = tensor.empty() : tensor<2x2xf32>
  %0 = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%x, %window : tensor<1x1x4x4xf32>, tensor<2x2xf32>) outs(%o : tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  %rows = linalg.broadcast ins(%row : tensor<1x1x4xf32>) outs(%x : tensor<1x1x4x4xf32>) dimensions = [3]
  %1 = linalg.pooling_nchw_sum {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
      ins(%rows, %window : tensor<1x1x4x4xf32>, tensor<2x2xf32>) outs(%o : tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  return %0, %1 : tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>
}

#row = affine_map<(m, k) -> (m)>
#all = affine_map<(m, k) -> (m, k)>

// A sum whose operand has equal elements because elementwise ops compare an integer with itself.
// CHECK-LABEL: func.func @summed(
// CHECK: %[[EQUAL:.*]] = linalg.generic
// CHECK: %[[NUMBERS:.*]] = linalg.generic
// CHECK-SAME: ins(%[[EQUAL]] : tensor<2x3xi1>)
// CHECK: %[[STORED:.*]] = util.optimization_barrier {qmlir.barrier_reason = "pooled-number"} %[[NUMBERS]]
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[STORED]] : tensor<2x3xi32>)
func.func @summed(%x: tensor<2x3xi32>, %b: tensor<2x3xi1>, %e: tensor<2x3xi32>, %o: tensor<2xi32>) -> tensor<2xi32> {
  %true = arith.constant true
  %equal = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<2x3xi32>, tensor<2x3xi32>) outs(%b : tensor<2x3xi1>) {
  ^bb0(%p: i32, %q: i32, %r: i1):
    %0 = arith.cmpi eq, %p, %q : i32
    linalg.yield %0 : i1
  } -> tensor<2x3xi1>
  %numbers = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%equal : tensor<2x3xi1>) outs(%e : tensor<2x3xi32>) {
  ^bb0(%p: i1, %r: i32):
    %0 = arith.extui %p : i1 to i32
    linalg.yield %0 : i32
  } -> tensor<2x3xi32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%numbers : tensor<2x3xi32>) outs(%o : tensor<2xi32>) {
  ^bb0(%p: i32, %r: i32):
    %0 = arith.addi %p, %r : i32
    linalg.yield %0 : i32
  } -> tensor<2xi32>
  return %sum : tensor<2xi32>
}

// Unchanged: the difference of two tensors, and a sum of products of which only one factor is a fill.
// CHECK-LABEL: func.func @other_sums(
// CHECK-NOT: barrier
// CHECK: return
func.func @other_sums(%x: tensor<2x3xi32>, %y: tensor<2x3xi32>, %e: tensor<2x3xi32>, %o: tensor<2xi32>)
    -> (tensor<2xi32>, tensor<2xi32>) {
  %two = arith.constant 2 : i32
  %less = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<2x3xi32>, tensor<2x3xi32>) outs(%e : tensor<2x3xi32>) {
  ^bb0(%p: i32, %q: i32, %r: i32):
    %0 = arith.subi %p, %q : i32
    linalg.yield %0 : i32
  } -> tensor<2x3xi32>
  %first = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%less : tensor<2x3xi32>) outs(%o : tensor<2xi32>) {
  ^bb0(%p: i32, %r: i32):
    %0 = arith.addi %p, %r : i32
    linalg.yield %0 : i32
  } -> tensor<2xi32>
  %twos = linalg.fill ins(%two : i32) outs(%e : tensor<2x3xi32>) -> tensor<2x3xi32>
  %second = linalg.generic {indexing_maps = [#all, #all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x, %twos : tensor<2x3xi32>, tensor<2x3xi32>) outs(%o : tensor<2xi32>) {
  ^bb0(%p: i32, %q: i32, %r: i32):
    %0 = arith.muli %p, %q : i32
    %1 = arith.addi %0, %r : i32
    linalg.yield %1 : i32
  } -> tensor<2xi32>
  return %first, %second : tensor<2xi32>, tensor<2xi32>
}
