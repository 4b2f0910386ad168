"""Kernels without a target: what a group of linalg ops computes, and the pieces every generator needs.

    description.py   what is computed, no word about how
    group.py         from a contraction and the elementwise ops around it to a description
    convolution.py   likewise from a convolution
    axes.py          what each loop of a contraction is
    factors.py       the two sides of a contraction, as the codes that they are made of
    computes.py      what one op computes: as its fact says (ir/facts.py), else as its body says
    chain.py         the elementwise ops behind a contraction
    gathers.py       rows and matrices that an index picks
    bodies.py        cloning scalar regions at register width
    layouts.py       padding, splitting, permuting and packing of a matrix as data
    scaled.py        what dequantises a weight, where it is a table's entry times a scale
    ranges.py        how large a value of a body can become
    row_sums.py      sums of an activation's rows, taken in the kernel
    weights.py       a constant weight: its codes, and the bytes that a kernel stores
    codes.py         what is known of a weight's codes, constant or not
    at_load.py       what parameters decide: computed when a program is loaded
    gather_operands.py what a batch gathers by an index, read from where it is
    routing.py       rows in blocks of experts: found, and written back to where they belong
    attention.py     what an attention op computes
    rows.py          groups of elementwise ops and reductions along rows
    emit.py          indices, loops and vectors, as functions
    outline.py       putting an executable in the place of a group
    zero_copy.py     which arguments of a program only built-in kernels read

Nothing here knows an instruction; `qmlir/targets/*/kernels` do. Nothing here imports passes or targets.
"""
