"""Vulkan's part of the kernels of `qmlir/targets/gpu_kernels`: SPIR-V's instructions, and cooperative matrices."""
