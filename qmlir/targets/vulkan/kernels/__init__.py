"""What Vulkan gives the kernels of `qmlir/targets/gpu_kernels`: SPIR-V's dot product, and exact products in bodies."""
