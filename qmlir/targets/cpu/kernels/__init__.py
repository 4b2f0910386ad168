"""Kernels for x86-64 and 64-bit Arm, written as IR through the bindings.

emit.py      helpers over the bindings: indices, loops, addresses, vectors
rules.py     scalar ops of bodies that have a better form on vectors
tiles.py     AMX's tile registers
micro.py     the interface between a register tile and its loops; integer_micro.py, float_micro.py: one class per
             x86 instruction; arm_micro.py, arm_float.py: the same for Arm
gemm.py      chunk sizes; chunk.py: the loops of a chunk; epilogue.py: its epilogue; product.py: the executable
activations.py  copies of activation rows for integer products; lines.py: a copy for tiles that read rows in place
integer.py   codes by codes: groups along K
weight_only.py  floats by weights of codes: the loops that decode
pack.py      how a weight is stored, and its bytes
chunks.py    how chunks are distributed over threads
strategy.py  decides when a kernel takes a contraction; all refusals are there
"""
