"""Finds in the IR the routing of rows to blocks of one group each, so that one kernel can replace the many small ops
that compute it (`passes/core/lower/blocks.py`).

`routing_of` finds the ops that make the blocks of a batch of products. `scattered` makes a kernel write each row to its
final place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..ir.facts import BACK, BLOCK_OF, ROUTES, ROW_OF, SLOT_OF, known
from ..ir.walk import collect, defining_op, operations_of, producer
from .description import Kernel

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_DROPPABLE = ("linalg.", "tensor.", "util.optimization_barrier", "flow.tensor.tie_shape", "arith.")


@dataclass(frozen=True)
class Routing:
    """R rows of G groups in NB blocks of B rows.

    Attributes:
        index: i32 `[NB]`, the group of each block, G for a block that is not used.
        row_of: i32 `[NB, B]`, the row at each place of the blocks, any row at an empty place.
        block_of, slot_of: i32 `[R]`, the block of each row, and its place in the block.
        source: i32 `[R]`, the group of each row, outside of `[0, G)` for none; or i32 `[G]`, the sizes of the groups if
            rows are sorted by group.
        sorted: whether `source` is the sizes.
    """

    index: ir.Value
    row_of: ir.Value
    block_of: ir.Value
    slot_of: ir.Value
    source: ir.Value
    sorted: bool
    groups: int

    @property
    def width(self) -> int:
        return int(ir.RankedTensorType(self.row_of.type).get_dim_size(1))

    @property
    def results(self) -> tuple[ir.Value, ...]:
        return self.index, self.row_of, self.block_of, self.slot_of


def routing_of(kernel: Kernel) -> Routing | None:
    """The routing that makes the blocks of a kernel's batch, None if they are not made by the lowering's ops."""
    batch = kernel.batch
    if batch is None or batch.index is None or batch.counts is None:
        return None
    start, sizes = batch.counts
    block_of = next((op for op in _readers(start) if known(op, BLOCK_OF) is not None), None)
    if block_of is None:
        return None
    owner, position = block_of.operands[0], block_of.operands[1]
    slot_of = next((op for op in _readers(position) if known(op, SLOT_OF) is not None), None)
    found = (op for op in defining_op(batch.index).block.operations if ROW_OF in op.operation.attributes)
    row_of = next((op.operation for op in found if _depends(op.operation, start)), None)
    if slot_of is None or row_of is None:
        return None
    in_order = bool(known(block_of, BLOCK_OF))
    return Routing(
        batch.index, row_of.results[0], block_of.results[0], slot_of.results[0], sizes if in_order else owner, in_order,
        batch.matrices,
    )  # fmt: skip


def _readers(value: ir.Value) -> Iterator[OpLike]:
    """The ops that read a value, including linalg ops that read it in their body by `tensor.extract`."""
    for use in value.uses:
        op = use.owner.operation
        yield op
        if op.name == "tensor.extract":
            yield op.parent.operation


def _depends(op: OpLike, value: ir.Value) -> bool:
    """Whether an op depends on a value, directly or through its producers."""
    seen: set[OpLike] = set()
    left = [op]
    while left:
        for operand in (v for reader in collect(left.pop()) for v in reader.operands):
            if operand == value:
                return True
            made = producer(operand)
            if made is not None and made not in seen:
                seen.add(made)
                left.append(made)
    return False


# ------------------------------------------------------------------------------------------ writing rows in place


def scattered(kernel: Kernel) -> Kernel:
    """The kernel with rows written directly to their places in `[R, N]`. Requires that the only reader of the result
    moves the rows there (`BACK`), and that one dispatch (`ROUTES`) made all tables, as that one also says which places
    of a block hold a row. Other kernels are returned unchanged."""
    batch = kernel.batch
    if batch is None or batch.index is None or kernel.gate is not None:
        return kernel
    routes = producer(batch.index)
    if routes is None or ROUTES not in routes.attributes:
        return kernel
    readers = [op for op in _readers(kernel.operations[-1].results[0]) if op.name != "tensor.extract"]
    back = readers[0] if len(readers) == 1 else None
    if back is None or known(back, BACK) is None or len(kernel.operations[-1].results) != 1:
        return kernel
    _, _, block_of, slot_of, target = routes.results
    reads = [op.operands[0] for op in collect(back, "tensor.extract")]
    if reads != [block_of, slot_of, kernel.operations[-1].results[0]]:
        return kernel
    rows = ir.RankedTensorType(back.results[0].type)
    size = None if rows.is_dynamic_dim(0) else rows.get_dim_size(0)
    return replace(kernel, batch=replace(batch, target=target), row_sizes=(size,),
                   operations=(*kernel.operations, back))  # fmt: skip


def sweep(function: OpLike) -> None:
    """Erase ops of a function whose results are unused, including those behind barriers, which IREE would keep."""
    for op in reversed(operations_of(function.regions[0].blocks[0])):
        droppable = op.name.startswith(_DROPPABLE) and list(op.results)
        if droppable and not any(list(result.uses) for result in op.results):
            op.erase()
