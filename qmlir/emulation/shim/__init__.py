"""Replacements of the CUDA and HIP libraries, in C: device memory is host memory, launches are passed to Python."""
