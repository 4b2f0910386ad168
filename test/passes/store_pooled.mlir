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

// A number that is repeated.
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

// Other elements, and columns that are repeated.
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
