// RUN: qmlir-opt %s --pass-pipeline=qmlir-split-broadcast | filecheck %s

#kn = affine_map<(n, k) -> (k, n)>
#n = affine_map<(n, k) -> (n)>
#mn = affine_map<(m, n) -> (m, n)>
#mn_n = affine_map<(m, n) -> (n)>
#id = affine_map<(n) -> (n)>

// A sum whose reader has one more parallel loop is computed in a separate dispatch.
// CHECK-LABEL: func.func @broadcast(
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"reduction"
// CHECK: %[[APART:.*]] = util.optimization_barrier
// CHECK: linalg.generic {{.*}}"parallel", "parallel"{{.*}}%[[APART]]
func.func @broadcast(%w: tensor<40x24xi32>, %x: tensor<8x24xi32>) -> tensor<8x24xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<24xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<24xi32>) -> tensor<24xi32>
  %sum = linalg.generic {indexing_maps = [#kn, #n], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<40x24xi32>) outs(%f : tensor<24xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %0 = arith.addi %a, %acc : i32
    linalg.yield %0 : i32
  } -> tensor<24xi32>
  %o = tensor.empty() : tensor<8x24xi32>
  %y = linalg.generic {indexing_maps = [#mn, #mn_n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<8x24xi32>, tensor<24xi32>) outs(%o : tensor<8x24xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %0 = arith.subi %a, %b : i32
    linalg.yield %0 : i32
  } -> tensor<8x24xi32>
  return %y : tensor<8x24xi32>
}

// IREE also fuses an elementwise op in between: the barrier is behind the sum.
// CHECK-LABEL: func.func @through(
// CHECK: util.optimization_barrier
func.func @through(%w: tensor<40x24xi32>, %x: tensor<8x24xi32>) -> tensor<8x24xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<24xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<24xi32>) -> tensor<24xi32>
  %sum = linalg.generic {indexing_maps = [#kn, #n], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<40x24xi32>) outs(%f : tensor<24xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %0 = arith.addi %a, %acc : i32
    linalg.yield %0 : i32
  } -> tensor<24xi32>
  %twice = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%sum : tensor<24xi32>) outs(%e : tensor<24xi32>) {
  ^bb0(%a: i32, %out: i32):
    %0 = arith.addi %a, %a : i32
    linalg.yield %0 : i32
  } -> tensor<24xi32>
  %o = tensor.empty() : tensor<8x24xi32>
  %y = linalg.generic {indexing_maps = [#mn, #mn_n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x, %twice : tensor<8x24xi32>, tensor<24xi32>) outs(%o : tensor<8x24xi32>) {
  ^bb0(%a: i32, %b: i32, %out: i32):
    %0 = arith.subi %a, %b : i32
    linalg.yield %0 : i32
  } -> tensor<8x24xi32>
  return %y : tensor<8x24xi32>
}

// A sum whose reader has the same loops stays fused.
// CHECK-LABEL: func.func @same_loops(
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @same_loops(%w: tensor<40x24xi32>) -> tensor<24xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<24xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<24xi32>) -> tensor<24xi32>
  %sum = linalg.generic {indexing_maps = [#kn, #n], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<40x24xi32>) outs(%f : tensor<24xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %0 = arith.addi %a, %acc : i32
    linalg.yield %0 : i32
  } -> tensor<24xi32>
  %twice = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%sum : tensor<24xi32>) outs(%e : tensor<24xi32>) {
  ^bb0(%a: i32, %out: i32):
    %0 = arith.addi %a, %a : i32
    linalg.yield %0 : i32
  } -> tensor<24xi32>
  return %twice : tensor<24xi32>
}

// A tensor that a sum reads in more loops than it is computed in gets a barrier, unless it is computed from a sum.
// CHECK-LABEL: func.func @repeated(
// CHECK: %[[PLACE:.*]] = linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: %[[APART:.*]] = util.optimization_barrier {qmlir.barrier_reason = "broadcast-sum"} %[[PLACE]]
// CHECK: linalg.generic {{.*}}"parallel", "parallel"{{.*}}%[[APART]]
// CHECK: linalg.generic {{.*}}"reduction"
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @repeated(%x: tensor<24xi32>) -> tensor<8xi32> {
  %c0 = arith.constant 0 : i32
  %e = tensor.empty() : tensor<24xi32>
  %place = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<24xi32>) outs(%e : tensor<24xi32>) {
  ^bb0(%a: i32, %out: i32):
    %0 = arith.muli %a, %a : i32
    linalg.yield %0 : i32
  } -> tensor<24xi32>
  %o = tensor.empty() : tensor<8x24xi32>
  %hit = linalg.generic {indexing_maps = [#mn_n, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%place : tensor<24xi32>) outs(%o : tensor<8x24xi32>) {
  ^bb0(%a: i32, %out: i32):
    %j = linalg.index 0 : index
    %n = arith.index_cast %j : index to i32
    %same = arith.cmpi eq, %a, %n : i32
    %0 = arith.extui %same : i1 to i32
    linalg.yield %0 : i32
  } -> tensor<8x24xi32>
  %ec = tensor.empty() : tensor<8xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%ec : tensor<8xi32>) -> tensor<8xi32>
  %sum = linalg.generic {indexing_maps = [#mn, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%hit : tensor<8x24xi32>) outs(%f : tensor<8xi32>) {
  ^bb0(%a: i32, %acc: i32):
    %0 = arith.addi %a, %acc : i32
    linalg.yield %0 : i32
  } -> tensor<8xi32>
  return %sum : tensor<8xi32>
}
