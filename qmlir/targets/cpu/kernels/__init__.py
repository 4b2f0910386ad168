"""Kernels for x86-64 and 64-bit Arm, written as IR through the bindings.

emit.py      thin functions over the bindings: indices, loops, pointers, vectors
rules.py     scalar ops of bodies that have a better form on vectors
tiles.py     AMX's registers
micro.py     what a register tile is to its loops; integer_micro.py, float_micro.py: a class for each instruction
             of x86; arm_micro.py, arm_float.py of Arm
gemm.py      sizes of chunks; chunk.py: their loops, epilogue.py: what follows, product.py: the executable of all
activations.py  rows as integer products want them; lines.py a copy of them for tiles that read rows where they lie
integer.py   codes by codes: groups along K
weight_only.py  floats by weights of codes: the loops that decode
pack.py      how a weight is stored, and its bytes
chunks.py    how the work is split, and who does which piece
strategy.py  when a kernel takes a contraction; every refusal is there
"""
