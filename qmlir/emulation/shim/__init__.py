"""Stand-ins for the libraries of CUDA and HIP, in C: device memory is host memory, kernels go to Python."""
