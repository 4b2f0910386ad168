// Of a marked executable IREE has to have made the scaled matrix instruction. The first run of the pass marks, the second
// one checks what IREE made in between; here it made nothing.
// RUN: qmlir-opt --pass-pipeline='qmlir-check-scaled-products' %s | filecheck %s
// RUN: not qmlir-opt --pass-pipeline='qmlir-check-scaled-products,qmlir-check-scaled-products' %s 2>&1 | filecheck %s --check-prefix=MISSING

// CHECK: export public @product {{.*}} attributes {scaled_product}
// CHECK: export public @instruction ordinal(0) layout(#pipeline_layout){{$}}
// CHECK-NOT: scaled_product
// CHECK: export public @other ordinal(0) layout(#pipeline_layout){{$}}

// MISSING: error: IREE made no v_mfma_scale_f32_16x16x128_f8f6f4 of a scaled product (product)

#target = #hal.executable.target<"rocm", "rocm-hsaco-fb">
#layout = #hal.pipeline.layout<bindings = [#hal.pipeline.binding<storage_buffer>]>
module {
  hal.executable private @a {
    hal.executable.variant public @rocm target(#target) {
      hal.executable.export public @product ordinal(0) layout(#layout)
      builtin.module {
        func.func @product(%code: f8E4M3FN, %scale: f8E8M0FNU) -> f32 {
          %number = arith.scaling_extf %code, %scale : f8E4M3FN, f8E8M0FNU to f32
          return %number : f32
        }
      }
    }
  }
  hal.executable private @b {
    hal.executable.variant public @rocm target(#target) {
      hal.executable.export public @instruction ordinal(0) layout(#layout) attributes {scaled_product}
      builtin.module {
        llvm.func @instruction(%a: vector<8xi32>, %b: vector<8xi32>, %c: vector<4xf32>, %s: i32) -> vector<4xf32> {
          %d = rocdl.mfma.scale.f32.16x16x128.f8f6f4 %a, %b, %c, fp8_e4m3, fp8_e4m3, 0, %s, 0, %s
              : (vector<8xi32>, vector<8xi32>, vector<4xf32>, i32, i32) -> vector<4xf32>
          llvm.return %d : vector<4xf32>
        }
      }
    }
  }
  hal.executable private @c {
    hal.executable.variant public @rocm target(#target) {
      hal.executable.export public @other ordinal(0) layout(#layout)
    }
  }
}
