"""Named matrix products of linalg."""

from __future__ import annotations

from ..core.faults import Fault
from ..core.mlir import ir, linalg
from .walk import defining_op

FAULTS = (
    Fault(
        "IREE ends the process at a named product without indexing maps, as MLIR's Python bindings make it, that reads "
        "a transpose.",
        canary="named_product",
    ),
)


def matrix_product(lhs: ir.Value, rhs: ir.Value, out: ir.Value) -> ir.Value:
    """`out + lhs x rhs` of matrices, or of a batch of them, with its indexing maps."""
    rank = out.type.rank
    product = (linalg.matmul if rank == 2 else linalg.batch_matmul)(lhs, rhs, outs=[out])
    *batch, m, n, k = (ir.AffineDimExpr.get(i) for i in range(rank + 1))
    maps = [ir.AffineMap.get(rank + 1, 0, [*batch, *axes]) for axes in ((m, k), (k, n), (m, n))]
    defining_op(product).attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps])
    return product
