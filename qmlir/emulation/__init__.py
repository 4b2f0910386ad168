"""Emulated devices: GPU programs executed without a GPU.

IREE's own HIP and CUDA drivers run the unchanged `.vmfb`. In place of the vendor's library (`libamdhip64.so`,
`libcuda.so`) they load one of qmlir's, which keeps device memory in host memory and hands each launch to an executor in
Python (`amd`, `cuda`). The executor interprets the device's own instructions one by one and checks each of them.
"""
