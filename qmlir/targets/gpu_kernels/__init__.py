"""Kernels that ROCm and Vulkan share: a `Kernel` of `qmlir/kernels` as threads, written as IR through the bindings.

emit.py        thin functions over the bindings: indices, loops, memory, vectors
machine.py     what a kernel asks of a target: its dot product of bytes, its rules for bodies
executable.py  the executable around a kernel
weights.py     how a weight is stored, and its bytes
epilogue.py    what is done to a sum: operands read and bodies cloned for neighbouring columns of a row
loop.py        the loop of a product: steps along K, groups, threads that share K, the epilogue
stages.py      sides that go through shared memory: which thread copies what, and where it lies
tiled.py       a product in tiles as a function of an executable
stream_k.py    products whose K several workgroups share
tile_choice.py tiles that can be asked for, and whether workgroups share K
dot.py         products by dot products of bytes or multiply-adds: threads that share K, and tiles of outputs

Nothing here knows a target; `qmlir/targets/rocm/kernels` and `qmlir/targets/vulkan/kernels` do.
"""
