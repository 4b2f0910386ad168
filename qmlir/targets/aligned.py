"""Pad a contraction's sizes to the multiples that a device's matrix instructions need, and make its layout plain.

IREE's SPIR-V code generation only handles whole tiles of plain layouts: a ragged size falls back to one
thread per element, and with a batch dim that is not the outermost of its operand (K groups) compilation fails
("no GPU subgroup mma compute ops generated"). The operands are therefore padded with zeros, which add nothing to a
sum, and permuted; the result is permuted back and sliced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.mlir import ir, tensor
from ..dialect.constants import is_zero_fill
from ..ir.affine import axis_loops, indexing_maps
from ..ir.barriers import Reason, fusion_barrier
from .strategy import Contraction, Facts
from .tensors import computed, filled, generic_like, pad_end, permuted, sizes_of, type_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def fitting_block(size: int, unit: int, most: int = 64) -> int:
    """The largest power-of-two multiple of `unit`, up to `most`, that pads `size` little more than `unit` does: bigger
    blocks are better tiles."""
    floor = -(-size // unit) * unit
    block = most
    while block > unit and -(-size // block) * block > floor * 9 // 8:
        block //= 2
    return block


@dataclass(frozen=True)
class AlignedPlan:
    """Pad iteration dim `d` to a multiple of `blocks[d]` (1: no padding)."""

    contraction: Contraction
    blocks: tuple[int, ...]
    codegen: str

    def apply(self, op: OpLike) -> None:
        with ir.InsertionPoint(op):
            result = aligned(op, self.contraction, self.blocks)
        op.results[0].replace_all_uses_with(result)
        op.erase()

    def describe(self) -> Facts:
        return {"route": "aligned", "blocks": list(self.blocks), "codegen": self.codegen}


def aligned(op: OpLike, c: Contraction, blocks: tuple[int, ...]) -> ir.Value:
    """Compute the result of the matmul-like `op` of static sizes on whole blocks, as
    `[b.., m.., k..] x [b.., n.., k..] -> [b.., m.., n..]`.

    Barriers separate padding, contraction and slice: IREE would otherwise move the final slice through the
    contraction and the permutation into it, which makes it ragged again. They cost nothing at run time.
    """
    maps = indexing_maps(op)
    init = op.operands[2]
    # The iteration space is in plain order too: IREE's code generation only looks at leading dims.
    space = [d for role in "bmnk" for d, r in enumerate(c.roles) if r == role]
    operands, new_maps = [], []
    for number, (value, affine_map) in enumerate(zip(op.operands, maps, strict=True)):
        dims = axis_loops(affine_map)
        source = value
        for axis, dim in enumerate(dims):
            size = c.sizes[dim] or 0
            value = pad_end(value, axis, -size % blocks[dim])
        order = sorted(range(len(dims)), key=lambda axis: space.index(dims[axis]))
        if order != list(range(len(dims))):
            value = permuted(value, order)
        if number == 2 and is_zero_fill(init):
            value = filled(sizes_of(value), type_of(value).element_type)
        elif value != source or (number < 2 and c.lhs.startswith("f") and computed(value)):
            value = fusion_barrier(value, Reason.ALIGNED)
        operands.append(value)
        exprs = [ir.AffineDimExpr.get(space.index(dims[axis])) for axis in order]
        new_maps.append(ir.AffineMap.get(len(space), 0, exprs))

    kinds = ["reduction" if c.roles[d] == "k" else "parallel" for d in space]
    result = fusion_barrier(generic_like(op, operands, new_maps, kinds), Reason.ALIGNED)
    dims = axis_loops(maps[2])
    order = sorted(range(len(dims)), key=lambda axis: space.index(dims[axis]))
    if order != list(range(len(dims))):
        result = permuted(result, [order.index(axis) for axis in range(len(dims))])
    return _cut(result, [c.sizes[dim] or 0 for dim in dims])


def _cut(value: ir.Value, sizes: list[int]) -> ir.Value:
    """The slice of a static tensor that starts at zero and has these `sizes`."""
    kind = type_of(value)
    if list(kind.shape) == sizes:
        return value
    rank = kind.rank
    result = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.extract_slice(result, value, [], [], [], [0] * rank, sizes, [1] * rank)
