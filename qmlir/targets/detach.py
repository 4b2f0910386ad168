"""Hide known multiples of dynamic sizes from IREE, which would drop the tiles of a contraction.

A dynamic size that is a known multiple of a constant (`B * 196`, from a collapsed batch) is split by IREE's code
generation into `B x 196`, which drops the `compilation_info` (IREE 3.13, "block dynamic dimensions"). IREE's own
heuristics then compile an odd multiple to a scalar loop. If the constant is a multiple of 16, they find the matrix
instruction, and the epilogue stays fused; such contractions are left unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir.affine import axis_loops, indexing_maps
from ..ir.barriers import Reason, fusion_barrier, opaque
from ..ir.walk import defining_op
from .tensors import (
    filled,
    generic_like,
    known_multiple,
    sizes_of,
    type_of,
)

if TYPE_CHECKING:
    from ..core.mlir import OpLike


FAULTS = (
    Fault(
        "IREE splits a dynamic size that is known to be a multiple of a constant, and drops the lowering configuration "
        "of the product.",
        canary="known_multiple",
        upstream="https://github.com/iree-org/iree/pull/19992",
    ),
)


def _loses_tiles(op: OpLike) -> bool:
    for value in op.operands[:2]:
        kind = type_of(value)
        for axis in range(kind.rank):
            if kind.is_dynamic_dim(axis) and (multiple := known_multiple(value, axis)) > 1 and multiple % 16:
                return True
    return False


def detached(op: OpLike) -> OpLike:
    """`op`, or a replacement between barriers whose dynamic sizes are opaque to IREE."""
    if not _loses_tiles(op):
        return op
    with ir.InsertionPoint(op):
        maps = indexing_maps(op)
        positions = [axis_loops(m) for m in maps]
        hidden: dict[int, ir.Value | int] = {}
        for value, dims in zip(op.operands, positions, strict=True):
            for dim, size in zip(dims, sizes_of(value), strict=True):
                if dim not in hidden:
                    hidden[dim] = opaque(size)
        operands = [
            fusion_barrier(value, Reason.OPAQUE_SIZES, [hidden[d] for d in dims])
            for value, dims in zip(op.operands[:2], positions[:2], strict=True)
        ]
        init, out = op.operands[2], [hidden[d] for d in positions[2]]
        start = (
            filled(out, type_of(init).element_type)
            if is_zero_fill(init)
            else fusion_barrier(init, Reason.OPAQUE_SIZES, out)
        )
        reductions = set(range(len(hidden))) - set(positions[2])
        kinds = ["reduction" if d in reductions else "parallel" for d in range(len(hidden))]
        new = generic_like(op, [*operands, start], maps, kinds)
        result = fusion_barrier(new, Reason.OPAQUE_SIZES, sizes_of(init))
    op.results[0].replace_all_uses_with(result)
    op.erase()
    made: OpLike = defining_op(new)
    return made
