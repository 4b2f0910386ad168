// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-recurrences{target=cpu:x86-64-v4}' | filecheck %s --check-prefix=KERNEL
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-recurrences{target=cpu:x86-64}' | filecheck %s --check-prefix=LOOP
// RUN: qmlir-opt %s --split-input-file --pass-pipeline='qmlir-recurrences{target=rocm:gfx942}' | filecheck %s --check-prefix=LOOP

// The kernel runs all steps. Constant weights are packed: for 16 units of the first two gates, one row per element of
// the state (16), and the same for the last gate. The workspace holds two states, and the results of the first gates.
// KERNEL: stream.executable private @layer_recurrence_0
// KERNEL-NOT: @gru
// KERNEL-LABEL: func.func @layer(
// KERNEL: arith.constant dense<2.500000e-01> : tensor<1x1x16x32xf32>
// KERNEL: arith.constant dense<2.500000e-01> : tensor<1x1x16x16xf32>
// KERNEL: flow.dispatch @layer_recurrence_0::@layer_recurrence_0[%{{.*}}, %{{.*}}](%{{.*}}, %{{.*}}, %{{.*}}, %arg0, %{{.*}}, %{{.*}}, %arg1) : {{.*}} -> (tensor<?x1x?x16xf32>{{.*}}, tensor<1x?x16xf32>{{.*}}, tensor<4x1x?x16xf32>
// KERNEL-NOT: call @
//
// On other targets the function stays, like any other.
// LOOP: func.func private @gru(%{{.*}}: tensor<?x?x48xf32>, %{{.*}}: tensor<1x48x16xf32>, %{{.*}}: tensor<1x?x16xf32>) -> (tensor<?x1x?x16xf32>, tensor<1x?x16xf32>) {
// LOOP-LABEL: func.func @layer(
// LOOP: call @gru
func.func private @gru(%x: tensor<?x?x48xf32>, %r: tensor<1x48x16xf32>, %h: tensor<1x?x16xf32>)
    -> (tensor<?x1x?x16xf32>, tensor<1x?x16xf32>) attributes {no_inline, qmlir.recurrence = "{\22cell\22: \22gru\22, \22hidden\22: 16, \22reverse\22: [false], \22activations\22: [[{\22name\22: \22sigmoid\22}, {\22name\22: \22tanh\22}]]}"} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %steps = tensor.dim %x, %zero : tensor<?x?x48xf32>
  %batch = tensor.dim %x, %one : tensor<?x?x48xf32>
  %y = tensor.empty(%steps, %batch) : tensor<?x1x?x16xf32>
  return %y, %h : tensor<?x1x?x16xf32>, tensor<1x?x16xf32>
}
func.func @layer(%x: tensor<?x?x48xf32>, %h: tensor<1x?x16xf32>) -> tensor<?x1x?x16xf32> {
  %r = arith.constant dense<0.25> : tensor<1x48x16xf32>
  %0:2 = call @gru(%x, %r, %h) : (tensor<?x?x48xf32>, tensor<1x48x16xf32>, tensor<1x?x16xf32>) -> (tensor<?x1x?x16xf32>, tensor<1x?x16xf32>)
  return %0#0 : tensor<?x1x?x16xf32>
}

// -----

// A function without the attribute `qmlir.recurrence` is not a recurrent layer.
// KERNEL-LABEL: func.func private @other(
// KERNEL-NOT: flow.dispatch
// LOOP-LABEL: func.func private @other(
func.func private @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @other(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
