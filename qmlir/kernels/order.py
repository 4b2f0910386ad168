"""The order of axes in which a kernel's operands are passed to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.mlir import arith, ir
from .bodies import is_small_float
from .description import COLUMN, Operand
from .outline import aligned, merged
from .weights import known


def letters(operand: Operand) -> str:
    """The axes of the tensor that is passed to the kernel: in the program's order if columns are last or absent, which
    saves the dispatch that would transpose a scale of rows and groups; otherwise, or for a constant, in `ORDER`."""
    own = "".join(x for i, x in enumerate(operand.source_axes) if i == 0 or operand.source_axes[i - 1] != x)
    plain = len(set(own)) == len(own) and (COLUMN not in own or own[-1] == COLUMN)
    return own if plain and known(operand.value) is None else operand.axes


def arranged(operand: Operand) -> ir.Value:
    """The tensor with its axes in the order of `letters`, at the insertion point; a constant of one-byte floats
    becomes bytes."""
    array = known(operand.value) if is_small_float(operand.element_type) else None
    if array is not None:
        kind = ir.RankedTensorType.get(array.shape, ir.IntegerType.get_signless(8))
        codes = np.ascontiguousarray(array).view(np.int8)
        operand = replace(operand, value=arith.constant(kind, ir.DenseElementsAttr.get(codes, type=kind)))
        return aligned(operand)
    return aligned(operand) if letters(operand) == operand.axes else merged(operand)
