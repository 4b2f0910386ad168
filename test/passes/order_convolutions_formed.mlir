// RUN: not qmlir-opt --pass-pipeline='qmlir-order-convolutions' %s 2>&1 | filecheck %s
// A convolution that IREE itself made, in an executable.

// CHECK: order_convolutions_formed.mlir:27:{{[0-9]+}}: error: IREE made a convolution of this whose operands have their axes in two orders, which it computes wrong on GPUs; give both with their channels last (NHWC, FHWC)
// CHECK-NOT: error
#target = #hal.executable.target<"rocm", "rocm-hsaco-fb">
#layout = #hal.pipeline.layout<bindings = [#hal.pipeline.binding<storage_buffer>]>
#chw = affine_map<(h, w, f, r, s, c) -> (c, h + r, w + s)>
#hwc = affine_map<(h, w, f, r, s, c) -> (h + r, w + s, c)>
#w = affine_map<(h, w, f, r, s, c) -> (f, r, s, c)>
#o = affine_map<(h, w, f, r, s, c) -> (h, w, f)>
module {
  hal.executable private @a {
    hal.executable.variant public @rocm target(#target) {
      hal.executable.export public @both ordinal(0) layout(#layout)
      builtin.module {
        func.func @both(%x: tensor<2x6x6xf32>, %y: tensor<6x6x2xf32>, %w: tensor<4x3x3x2xf32>, %out: tensor<4x4x4xf32>)
            -> (tensor<4x4x4xf32>, tensor<4x4x4xf32>) {
          %0 = linalg.generic {indexing_maps = [#hwc, #w, #o],
              iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
              ins(%y, %w : tensor<6x6x2xf32>, tensor<4x3x3x2xf32>) outs(%out : tensor<4x4x4xf32>) {
          ^bb0(%a: f32, %b: f32, %acc: f32):
            %m = arith.mulf %a, %b : f32
            %s = arith.addf %acc, %m : f32
            linalg.yield %s : f32
          } -> tensor<4x4x4xf32>
          %1 = linalg.generic {indexing_maps = [#chw, #w, #o],
              iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
              ins(%x, %w : tensor<2x6x6xf32>, tensor<4x3x3x2xf32>) outs(%out : tensor<4x4x4xf32>) {
          ^bb0(%a: f32, %b: f32, %acc: f32):
            %m = arith.mulf %a, %b : f32
            %s = arith.addf %acc, %m : f32
            linalg.yield %s : f32
          } -> tensor<4x4x4xf32>
          return %0, %1 : tensor<4x4x4xf32>, tensor<4x4x4xf32>
        }
      }
    }
  }
}
