// Each export gets the shared memory of its own kernel, in place of IREE's sum over all functions of the executable. An
// export that needs more than the target has is refused, because a device would not load the program.
// RUN: qmlir-opt --pass-pipeline='qmlir-shared-memory' %s | filecheck %s
// RUN: sed 's/shared_memory_bytes = 114688/shared_memory_bytes = 166913/' %s > %t.mlir
// RUN: not qmlir-opt --pass-pipeline='qmlir-shared-memory' %t.mlir 2>&1 | filecheck %s --check-prefix=MORE

// CHECK: export public @few {{.*}} <workgroup_local_memory = 512>
// CHECK-NOT: shared_memory_bytes
// CHECK: export public @many {{.*}} <workgroup_local_memory = 114688>
// CHECK-NOT: shared_memory_bytes
// CHECK: export public @stock {{.*}} <workgroup_local_memory = 4096>

// MORE: error: the kernel many needs 166,913 bytes of shared memory, and a workgroup of the target has 166,912

#target = #hal.executable.target<"cuda", "cuda-nvptx-fb", {iree_codegen.target_info = #iree_gpu.target<arch = "sm_80",
    features = "+ptx76", wgp = <compute = int32, storage = b32, subgroup = shuffle, subgroup_size_choices = [32],
    max_workgroup_sizes = [1024, 1024, 64], max_thread_count_per_workgroup = 1024,
    max_workgroup_memory_bytes = 166912, max_workgroup_counts = [65535, 65535, 65535]>>}>
#layout = #hal.pipeline.layout<bindings = [#hal.pipeline.binding<storage_buffer>]>
module {
  hal.executable private @product {
    hal.executable.variant public @cuda target(#target) {
      hal.executable.export public @few ordinal(0) layout(#layout)
        <workgroup_local_memory = 269312> attributes {shared_memory_bytes = 512 : index}
      hal.executable.export public @many ordinal(1) layout(#layout)
        <workgroup_local_memory = 269312> attributes {shared_memory_bytes = 114688 : index}
    }
  }
  hal.executable private @other {
    hal.executable.variant public @cuda target(#target) {
      hal.executable.export public @stock ordinal(0) layout(#layout) <workgroup_local_memory = 4096>
    }
  }
}
