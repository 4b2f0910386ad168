"""Kernels without a target: what a group of linalg ops computes, and the pieces every generator needs.

    description.py   what is computed, no word about how
    group.py         from a contraction and the elementwise ops around it to a description
    bodies.py        cloning scalar regions at register width
    layouts.py       padding, splitting, permuting and packing of a matrix as data
    routing.py       rows in blocks of experts: found, and read through
    outline.py       putting an executable in the place of a group

Nothing here knows an instruction; `qmlir/targets/*/kernels` do. Nothing here imports passes or targets.
"""
