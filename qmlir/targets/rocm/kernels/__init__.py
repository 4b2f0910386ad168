"""The AMD side of the kernels of `qmlir/targets/gpu_kernels`: dot products of bytes, matrix instructions."""
