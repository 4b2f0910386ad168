"""Emulated devices: GPU programs executed without a GPU.

IREE's own HIP and CUDA drivers run the unchanged `.vmfb` on a library of ours in the place of the vendor's
(`libamdhip64.so`, `libcuda.so`): device memory is host memory, and a launch is handed to an executor in Python
(`amd`, `cuda`), which executes the device's own instructions, one by one, and checks each of them.
"""
