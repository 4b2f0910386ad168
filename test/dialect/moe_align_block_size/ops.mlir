// RUN: qmlir-opt %s --pass-pipeline=qmlir-verify | qmlir-opt - --pass-pipeline=qmlir-verify | filecheck %s

// 12 slots of 4 experts take at most ceil(12 / 8) + 3 = 5 blocks of 8.
// CHECK-LABEL: func.func @static(
// CHECK: "qmlir.moe_align_block_size"(%{{[^,)]*}}) {block_size = 8 : i64, experts = 4 : i64}
// CHECK-SAME: : (tensor<6x2xi32>) -> (tensor<40xi32>, tensor<5xi32>, tensor<i32>)
func.func @static(%ids: tensor<6x2xi32>) -> (tensor<40xi32>, tensor<5xi32>, tensor<i32>) {
  %0:3 = "qmlir.moe_align_block_size"(%ids) {experts = 4 : i64, block_size = 8 : i64}
      : (tensor<6x2xi32>) -> (tensor<40xi32>, tensor<5xi32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<40xi32>, tensor<5xi32>, tensor<i32>
}

// CHECK-LABEL: func.func @dynamic(
// CHECK: "qmlir.moe_align_block_size"
// CHECK-SAME: skip_invalid = true
func.func @dynamic(%ids: tensor<?x2xi64>) -> (tensor<?xi32>, tensor<?xi32>, tensor<i32>) {
  %0:3 = "qmlir.moe_align_block_size"(%ids) {experts = 4 : i64, block_size = 8 : i64, skip_invalid = true}
      : (tensor<?x2xi64>) -> (tensor<?xi32>, tensor<?xi32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<?xi32>, tensor<?xi32>, tensor<i32>
}
