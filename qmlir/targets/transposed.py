"""Fold the transpose of a tiled product's result into the product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir.affine import axis_loops, in_order, indexing_maps
from ..ir.build import transpose
from ..ir.walk import defining_op
from .tensors import filled, generic_like, sizes_of, type_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike


FAULTS = (
    Fault(
        "IREE fuses the transpose of a product's result into the product. The loops then have the order of the new "
        "result, but the lowering configuration keeps the old one, so that axes are tiled by the sizes of others.",
        canary="transposed_product",
    ),
)


def transposed(op: OpLike) -> tuple[OpLike, list[int]]:
    """Fold a transpose that is the only use of the product `op` into it. Returns the product, whose loops are then in
    the order of the new result, and for each of its loops the loop of `op` that it was."""
    maps, readers = indexing_maps(op), [use.owner.operation for use in op.results[0].uses]
    same = list(range(maps[0].n_dims))
    if len(readers) != 1 or readers[0].name != "linalg.transpose":
        return op, same
    order = list(readers[0].attributes["permutation"])
    result = [axis_loops(maps[2])[i] for i in order]
    loops = [*result, *(x for x in same if x not in result)]
    out = ir.AffineMap.get(len(loops), 0, [ir.AffineDimExpr.get(x) for x in result])
    renamed = [in_order(m, loops) for m in (*maps[:2], out)]
    kinds = ["parallel" if x in result else "reduction" for x in loops]
    with op.location, ir.InsertionPoint(op):
        init = op.operands[2]
        if is_zero_fill(init):
            init = filled([sizes_of(init)[i] for i in order], type_of(init).element_type)
        else:
            init = transpose(init, order)
        made = generic_like(op, [*op.operands[:2], init], renamed, kinds)
    readers[0].results[0].replace_all_uses_with(made)
    readers[0].erase()
    op.erase()
    product: OpLike = defining_op(made)
    return product, loops
