"""Sums of activation rows, which zero points of weights need, computed in the kernel.

The lowering writes `sum_k lhs[m, k]` as a separate op, which is a dispatch that reads the activation again. A kernel
that multiplies the same codes has them in registers and makes that op unnecessary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..ir.walk import BARRIERS, made_by, producer
from .computes import row_sums_of
from .description import BATCH, GROUP, ROW, Kernel, Operand, RowSum, Stage, StageSource

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def absorbed(kernel: Kernel) -> Kernel:
    """The kernel with `RowSum` in place of operands that are sums of the activation's rows. The ops that make such a
    tensor become operations of the kernel if nothing else reads it."""
    if not kernel.operations or kernel.lhs.window is not None:
        return kernel
    activation = kernel.operations[0].operands[0]
    taken: list[ir.Value] = []

    def source(s: StageSource, axes: str) -> StageSource:
        if not isinstance(s, Operand) or s.axes != axes or not _sums(s, activation, axes):
            return s
        taken.append(s.value)
        return RowSum()

    def of(stage: Stage, axes: str) -> Stage:
        return replace(stage, sources=tuple(source(s, axes) for s in stage.sources))

    batch = "" if kernel.batch is None else BATCH
    combine = None if kernel.combine is None else of(kernel.combine, batch + GROUP + ROW)
    stages = tuple(of(stage, batch + ROW) for stage in kernel.stages)
    first, *rest = kernel.operations
    for value in taken:
        rest = [*(op for op in _makers(value, rest) if op not in rest), *rest]
    return replace(kernel, combine=combine, stages=stages, operations=(first, *rest))


def _makers(value: ir.Value, readers: list[OpLike]) -> list[OpLike]:
    """The sum that makes `value`, and the barriers between, first to last, as far as only `readers` read them."""
    owner = producer(value)
    if owner is None or any(use.owner.operation not in readers for use in value.uses):
        return []
    made: list[OpLike] = [owner]
    return [*_makers(owner.operands[0], made), owner] if owner.name in BARRIERS else made


def uses_row_sums(kernel: Kernel) -> bool:
    """Whether a body reads a sum of the activation's row."""
    stages = [s for s in (kernel.combine, *kernel.stages) if s is not None]
    return any(isinstance(source, RowSum) for stage in stages for source in stage.sources)


def _sums(operand: Operand, activation: ir.Value, axes: str) -> bool:
    """Whether an operand is the sum of the signed codes of `activation` over its last axis, and follows the axes of the
    kernel that remain."""
    found = row_sums_of(operand.value)
    if found is None or not _same(found[0], activation):
        return False
    rows = len(found[1]) - len(axes) + 1
    letters = [BATCH] * (BATCH in axes) + [ROW] * rows + [GROUP] * (GROUP in axes)  # of the activation, without K
    kept = [i for i in found[1] if letters[i] == ROW]
    return tuple(letters[i] for i in found[1]) == operand.source_axes and kept == sorted(kept)


def _same(a: ir.Value, b: ir.Value) -> bool:
    """Whether two values are equal, or equal views of one value."""
    if a == b:
        return True
    one, other = made_by(a, "tensor.expand_shape"), made_by(b, "tensor.expand_shape")
    if one is None or other is None or a.type != b.type:
        return False
    reshaped = one.attributes["reassociation"] == other.attributes["reassociation"]
    return bool(reshaped and one.operands[0] == other.operands[0])
