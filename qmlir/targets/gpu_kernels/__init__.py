"""Common parts of the kernels for all GPUs: they emit a `Kernel` of `qmlir/kernels` as IR for a thread.

emit.py        thin functions over the bindings: indices, loops, memory, vectors
machine.py     the interface to a target: its dot product of bytes, its rules for bodies
executable.py  the executable around a kernel
weights.py     storage formats of weights
epilogue.py    the ops on a sum: loads of operands and cloned bodies for neighbouring columns of a row
loop.py        the loop of a product: steps along K, groups, threads that share K, the epilogue
stages.py      operands that pass through shared memory: their layout there, and which thread copies which piece
tiled.py       a tiled kernel: its function of an executable, its weight, its work for the cost model
plan.py        the plan that replaces a contraction by a kernel, and the choice between several kernels
strategy.py    the base class of the strategies for products
scaled.py      products with a scale for each block along K: preparation of their operands
stream_k.py    products whose K is shared by several workgroups
multi_version.py  several kernels for a product with a dynamic number of rows
dot.py         products by dot products of bytes or multiply-adds: threads that share K, or tiles of outputs

Nothing here knows a target; `qmlir/targets/rocm/kernels` and `qmlir/targets/vulkan/kernels` do.
"""
