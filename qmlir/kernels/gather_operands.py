"""Operands that the products of a batch gather by an index, read in place instead.

The lowering gathers the scales of matrices and rows into tensors `[B, ..]` and `[B, M, ..]`, with one dispatch each. A
kernel that knows its matrix and its rows reads the ungathered tensors directly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..ir.walk import BARRIERS, defining_op, producer_name
from .computes import gathered_from, repeated_from, signed_from, unclamped
from .description import BATCH, MATRIX, ROW, SLOT, TOKEN, Batch, Kernel, Operand, Stage, StageSource
from .gathers import gathered_rows

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_VIEWS = ("tensor.collapse_shape", "tensor.expand_shape", *BARRIERS)


def gather_operands(kernel: Kernel, slots: bool = False) -> Kernel:
    """The kernel with ungathered operands: those that the program gathers with the batch's index follow the axes
    `MATRIX` and `TOKEN` instead, with `slots` also `SLOT`. Gathers that nothing else reads become the first operations
    of the kernel."""
    if kernel.batch is None or not kernel.operations:
        return kernel
    batch, lhs = kernel.batch, kernel.lhs
    if batch.rows is None:
        batch, lhs = gathered_rows(batch, lhs, dynamic=True)
    taken: list[ir.Value] = []

    def source(s: StageSource) -> StageSource:
        found = _ungathered(s, batch, slots) if isinstance(s, Operand) else None
        if found is None or not isinstance(s, Operand):
            return s
        taken.append(s.value)
        return found

    def of(stage: Stage) -> Stage:
        return replace(stage, sources=tuple(source(s) for s in stage.sources))

    combine = None if kernel.combine is None else of(kernel.combine)
    rhs = kernel.rhs if kernel.rhs.decode is None else replace(kernel.rhs, decode=of(kernel.rhs.decode))
    stages = tuple(of(stage) for stage in kernel.stages)
    first = kernel.operations[0]
    operations = [*(_decoding(first) if taken and rhs.decode is not None else []), *kernel.operations]
    rows = [first.operands[0]] if batch.rows is not None else []
    for value in [*taken, *rows]:
        operations = [*(op for op in _views(value, operations) if op not in operations), *operations]
    return replace(
        kernel, lhs=lhs, rhs=rhs, batch=batch, combine=combine, stages=stages, operations=tuple(operations)
    )  # fmt: skip


def _decoding(contraction: OpLike) -> list[OpLike]:
    """The ops that decode the weight and whose results nothing else reads."""
    found: list[OpLike] = []
    value, readers = contraction.operands[1], [contraction]
    while producer_name(value) in ("tensor.collapse_shape", "linalg.generic"):
        if any(use.owner.operation not in readers for use in value.uses):
            break
        readers = [defining_op(value)]
        found = [*readers, *found]
        if producer_name(value) == "linalg.generic":
            break
        value = readers[0].operands[0]
    return found


def _ungathered(operand: Operand, batch: Batch, slots: bool) -> Operand | None:
    """The operand that is gathered, None if `operand` is not a gather by the batch's index or rows."""
    value, axes = operand.value, list(operand.source_axes)
    if producer_name(value) == "tensor.collapse_shape":
        split = _with_units(defining_op(value), axes)
        if split is None:
            return None
        value, axes = defining_op(value).operands[0], split
    found = gathered_from(value)
    if found is None:
        return None
    source, index = found
    if axes[:1] == [BATCH] and batch.index is not None and unclamped(index, batch.matrices) == batch.index:
        return Operand(source, (MATRIX, *(MATRIX if a == BATCH else a for a in axes[1:])))
    if axes[:2] == [BATCH, ROW] and batch.rows is not None and index == batch.rows:
        rows, repeats = repeated_from(source)
        letter = TOKEN if repeats == batch.repeats else SLOT if slots and repeats == 1 else None
        if letter is not None:
            return Operand(rows, (letter, *(letter if a == ROW else a for a in axes[2:])))
    return None


def _with_units(collapse: OpLike, axes: list[str]) -> list[str] | None:
    """The letters of the axes of a collapse's operand, axes of size one with the letter of the axis before them; None
    if a collapsed axis has several axes of another size."""
    kind = ir.RankedTensorType(collapse.operands[0].type)
    found: list[str] = []
    for group, letter in zip(collapse.attributes["reassociation"], axes, strict=True):
        members = [int(i.value) for i in group]
        sized = [i for i in members if kind.is_dynamic_dim(i) or kind.get_dim_size(i) != 1]
        first = members[0]
        at = sized[0] if sized else first
        if len(sized) > 1 or (at != first and not found):
            return None
        found += [found[-1] if i < at else letter for i in members]
    return found


def _views(value: ir.Value, readers: list[OpLike]) -> list[OpLike]:
    """The views, barriers and conversions of unsigned codes to signed ones that lead to `value`, first to last, as far
    as only `readers` read them."""
    if (producer_name(value) not in _VIEWS and signed_from(value) is None) or any(
        u.owner.operation not in readers for u in value.uses
    ):
        return []
    owner = defining_op(value)
    return [*_views(owner.operands[0], [owner]), owner]
