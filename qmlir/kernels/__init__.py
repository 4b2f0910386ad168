"""Target-independent side of kernels: what a group of linalg ops computes, and the tools that every generator needs.

    description.py   the description of a kernel: what it computes, not how
    group.py         from a contraction and the elementwise ops around it to a description
    convolution.py   likewise from a convolution
    axes.py          the role of each loop of a contraction
    factors.py       the two operands of a contraction, as the codes that they are made of
    computes.py      what one op computes: from its fact (ir/facts.py), else from its body
    chain.py         the elementwise ops that follow a contraction
    gathers.py       rows and matrices that are gathered by an index
    bodies.py        cloning scalar regions at register width
    layouts.py       padding, splitting, permuting and packing of a matrix as data
    scaled.py        decodes of a weight that are a table entry times a scale
    ranges.py        bounds on the values of a body
    row_sums.py      sums of an activation's rows, computed in the kernel
    weights.py       a constant weight: its codes, and the bytes that a kernel stores
    codes.py         what is known of a weight's codes, constant or not
    at_load.py       values that only parameters and constants decide: computed when a program is loaded
    gather_operands.py operands that a batch gathers by an index, read in place
    routing.py       rows in blocks of experts: found, and written back to their places
    attention.py     what an attention op computes
    rows.py          groups of elementwise ops and reductions along rows
    emit.py          functions that emit indices, loops and vectors
    outline.py       replacing a group by a dispatch of an executable
    zero_copy.py     the arguments of a program that only built-in kernels read

No module here emits a target's instructions; `qmlir/targets/*/kernels` do. No module here imports passes or targets.
"""
