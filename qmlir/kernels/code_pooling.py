"""Max pooling of dequantised 8-bit codes: because the value grows with the code, pooling the codes is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.mlir import arith, ir
from ..ir import build
from ..ir.walk import BARRIERS, behind, made_by, operations_of, producer_name, static_padding
from .bodies import scalar_constant
from .pointwise import Pointwise, Read, evaluated, meaning, sizes_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike


@dataclass(frozen=True)
class CodePooling:
    """A `linalg.pooling_nchw_max` of f32 values that one tensor of codes determines.

    Attributes:
        op: the pooling.
        codes: `[N, C, H, W]`, i8.
        unsigned: whether values grow with the codes read as unsigned; as signed otherwise.
        low, high: padding before and after the image along H and W.
        window, strides: of H and W. Windows are not dilated, and each holds an element of the image.
        numbers: the group that makes the pooled values from codes.
    """

    op: OpLike
    codes: ir.Value
    unsigned: bool
    low: tuple[int, int]
    high: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    numbers: Pointwise

    @property
    def image(self) -> tuple[int | None, ...]:
        """H and W."""
        return sizes_of(self.codes)[2:]


def find(op: OpLike) -> CodePooling | None:
    """The pooling of codes that `op` is; None for any other op."""
    if op.name != "linalg.pooling_nchw_max":
        return None
    x, window, out = op.operands
    fill = made_by(out, "linalg.fill")
    init = None if fill is None else scalar_constant(fill.operands[0])
    if init is None or (np.array(op.attributes["dilations"]) != 1).any():
        return None
    low, high, least = [0, 0], [0, 0], float(init.value)
    x = behind(x, *BARRIERS)
    if producer_name(x) == "tensor.pad":
        padding = static_padding(x)
        value = None if padding is None else scalar_constant(padding.fill)
        if padding is None or value is None:
            return None
        before, after = padding.low, padding.high
        if any([*before[:2], *after[:2]]) or min(*before, *after) < 0:
            return None
        low, high, least = before[2:], after[2:], max(least, float(value.value))
        x = behind(padding.source, *BARRIERS)
    numbers = meaning(x)
    if numbers is None or not numbers.leaves[0].follows(sizes_of(x)):
        return None
    found = evaluated(numbers)
    table = np.broadcast_to(found.results[numbers.steps[-1].result], (256,))
    if not np.isfinite(table).all() or table.min() < least:
        return None
    orders = {True: table, False: np.roll(table, 128)}
    growing = [unsigned for unsigned, t in orders.items() if (np.diff(t) >= 0).all()]
    sizes, size = sizes_of(x)[2:], sizes_of(window)
    strides = [int(s) for s in np.array(op.attributes["strides"])]
    if not growing or None in sizes or None in size:
        return None
    out_sizes = sizes_of(op.results[0])[2:]
    for i in range(2):
        k, n, o = size[i] or 0, sizes[i] or 0, out_sizes[i] or 0
        if low[i] >= k or (o - 1) * strides[i] - low[i] >= n:
            return None  # a window that lies in the padding only
    return CodePooling(op, numbers.leaves[0].value, growing[0], (low[0], low[1]), (high[0], high[1]),
                       (size[0] or 0, size[1] or 0), (strides[0], strides[1]), numbers)  # fmt: skip


def replace(pooling: CodePooling, codes: ir.Value) -> None:
    """Replace the pooling's result by the dequantised `codes`, which are already pooled, at the insertion point."""
    op, group = pooling.op, pooling.numbers

    def body(code: ir.Value) -> ir.Value:
        made: dict[Read, ir.Value] = {group.leaves[0]: code}
        for read, array in group.constants.items():
            made[read] = build.scalar(array.reshape(()).item(), read.value.type.element_type)
        for step in group.steps:
            known = dict(zip(step.body.arguments, (made[r] for r in step.reads), strict=False))
            made[step.result] = _cloned(step.body, known)
        return made[group.steps[-1].result]

    value = build.mapped(codes, op.results[0].type.element_type, body)
    op.results[0].replace_all_uses_with(value)
    left = [op, *_sources(op)]
    for each in left:
        if not any(list(r.uses) for r in each.results):
            each.erase()


def _sources(op: OpLike) -> list[OpLike]:
    """The pads and barriers that the pooling reads through, last first: IREE does not remove unused barriers."""
    found, value = [], op.operands[0]
    while (made := made_by(value, "tensor.pad", *BARRIERS)) is not None:
        found.append(made)
        value = made.operands[0]
    return found


def _cloned(body: ir.Block, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """Clone a body's ops on scalars at the insertion point; return the yielded value."""
    *steps, end = operations_of(body)
    for op in steps:
        operands = [known[operand] if operand in known else _constant(operand) for operand in op.operands]
        made = op.clone(ir.InsertionPoint.current)
        for i, operand in enumerate(operands):
            made.operands[i] = operand
        known.update(zip(op.results, made.results, strict=True))
    return known[end.operands[0]] if end.operands[0] in known else _constant(end.operands[0])


def _constant(value: ir.Value) -> ir.Value:
    return arith.constant(value.type, scalar_constant(value))
