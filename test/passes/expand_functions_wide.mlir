// RUN: qmlir-opt %s --pass-pipeline='qmlir-expand-functions{wide=true}' | filecheck %s
// RUN: qmlir-opt %s --pass-pipeline=qmlir-expand-functions | filecheck %s --check-prefix=NARROW

// CHECK-LABEL: func.func @sine(
// CHECK: arith.extui {{.*}} : i32 to i64
// CHECK: arith.muli {{.*}} : i64
// CHECK-NOT: mului_extended
// NARROW: arith.mului_extended {{.*}} : i32
// NARROW-NOT: i64
func.func @sine(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      outs(%x : tensor<4xf32>) {
  ^bb0(%a: f32):
    %1 = math.sin %a : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
