"""What kernels for all GPUs share: a `Kernel` of `qmlir/kernels` as threads, written as IR through the bindings.

emit.py        thin functions over the bindings: indices, loops, memory, vectors
machine.py     what a kernel asks of a target: its dot product of bytes, its rules for bodies
executable.py  the executable around a kernel
weights.py     how a weight is stored, and its bytes
epilogue.py    what is done to a sum: operands read and bodies cloned for neighbouring columns of a row
loop.py        the loop of a product: steps along K, groups, threads that share K, the epilogue
stages.py      sides that go through shared memory: which thread copies what, and where it lies
tiled.py       a kernel in tiles: its function of an executable, its weight, what it keeps busy
plan.py        a kernel in the place of a contraction, and which of several kernels it is
strategy.py    what strategies of products have in common
scaled.py      products with scales of blocks along K: how their operands are made ready
stream_k.py    products whose K several workgroups share
multi_version.py  several kernels of a product whose number of rows is known at run time only
dot.py         products by dot products of bytes or multiply-adds: threads that share K, and tiles of outputs

Nothing here knows a target; `qmlir/targets/rocm/kernels` and `qmlir/targets/vulkan/kernels` do.
"""
