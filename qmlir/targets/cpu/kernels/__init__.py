"""Kernels for x86-64, written as IR through the bindings.

emit.py      thin functions over the bindings: indices, loops, pointers, vectors
rules.py     scalar ops of bodies that have a better form on x86 vectors
tiles.py     AMX's registers
micro.py     register tiles: what multiplies (VNNI of 256 and 512 bits, AMX), one class each
gemm.py      the loops around a register tile, and the epilogue behind it
integer.py   codes by codes: activations and their sums, groups along K
weight_only.py  floats by weights of codes: the loops that decode
pack.py      how a weight is stored, and its bytes
chunks.py    how the work is split, and who does which piece
strategy.py  when a kernel takes a contraction; every refusal is there
"""
