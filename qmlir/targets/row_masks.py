"""Keep the masks of a padded tile's rows if its operand has a batch.

A tile of a ragged or dynamic size is padded: each thread loads `[1, 1, V]` of `[batch, row, k]` with the mask
`create_mask(1, n, V)`, where `n` is 0 for a row past the end. IREE 3.13 (MLIR's canonicalisation of
`shape_cast(create_mask)`) drops all leading unit sizes of a mask if the first of them is the constant 1. `n` is then
lost, and each row past the end loads the memory one row past the operand. A first size that is not constant keeps the
mask. So a reduction of one term, whose size IREE does not know, is added as the first dim of the operands. Padding
needs a bound of that size, which `qmlir-bound-unit-sums` states after IREE has formed the executable.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import arith, ir
from ..ir.affine import axis_loops, indexing_maps
from ..ir.barriers import opaque
from ..ir.walk import defining_op
from .tensors import rewritten, sizes_of, type_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

FAULTS = (
    Fault(
        "MLIR folds a mask whose leading size is one and loses the bounds of its other axes, so that a padded tile "
        "loads rows beyond the end.",
        canary="mask_of_rows",
    ),
)


UNIT_SUM = "qmlir.unit_sum"  # in the lowering configuration: the operands' first size is one


def loses_masks(op: OpLike, padded: Collection[int], tiled: Collection[int]) -> bool:
    """Whether IREE would drop a mask of an operand of the contraction `op`: its first dim is not in `tiled`, so that a
    thread loads one element of it, and another of its dims is in `padded`. The innermost dim is loaded as a vector and
    keeps its mask."""
    for affine_map in indexing_maps(op)[:2]:
        rows = axis_loops(affine_map)[:-1]
        if rows and rows[0] not in tiled and any(d in padded for d in rows):
            return True
    return False


def with_unit_sum(op: OpLike, at: int) -> OpLike:
    """Replace the contraction `op` by one with a further reduction, of one term, at iteration dim `at`."""
    with op.location, ir.InsertionPoint(op):
        unit = opaque(arith.constant(ir.IndexType.get(), 1))
        maps = indexing_maps(op)
        wide = []
        for number, affine_map in enumerate(maps):
            dims = [d + (d >= at) for d in axis_loops(affine_map)]
            if number < 2:
                dims.insert(0, at)
            wide.append(ir.AffineMap.get(affine_map.n_dims + 1, 0, [ir.AffineDimExpr.get(d) for d in dims]))
        operands = [_led_by(value, unit) for value in list(op.operands)[:2]]
        made: OpLike = defining_op(rewritten(op, [*operands, op.operands[2]], wide))
        return made


def _led_by(value: ir.Value, size: ir.Value) -> ir.Value:
    """`[..]` -> `[size, ..]`. Not `tensor.expand_shape`, which IREE would move through the contraction."""
    sizes, marker = sizes_of(value), ir.ShapedType.get_dynamic_size()
    dynamic = [s for s in sizes if not isinstance(s, int)]
    result = ir.RankedTensorType.get([marker, *type_of(value).shape], type_of(value).element_type)
    result.context.get_dialect_descriptor("flow")
    segments = ir.DenseI32ArrayAttr.get([1, len(dynamic), len(dynamic) + 1])
    return ir.Operation.create(
        "flow.tensor.reshape",
        results=[result],
        operands=[value, *dynamic, size, *dynamic],
        attributes={"operandSegmentSizes": segments},
    ).results[0]
