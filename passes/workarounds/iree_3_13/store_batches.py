"""qmlir-store-batches: compute an operand of a batched product in a separate dispatch where its rows are padded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import indexing_maps, loops_of
from ....ir.attributes import is_elementwise, reassociation
from ....ir.barriers import Reason, fusion_barrier
from ....ir.walk import behind, made_by
from ...base import Pass, State
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike
    from ....targets.strategy import Contraction

FAULTS = (
    Fault(
        "IREE merges the batch and the rows of the op that computes an operand of a batched product. Then it packs "
        "that operand for a CPU with the rows of each product padded to whole tiles, in other places than the product "
        "reads: every product of the batch but the first is wrong.",
        canary="padded_batch",
    ),
    Fault(
        "The same happens where the operand is a transpose of rows that are scaled by a sum over them.",
        canary="padded_transposed",
    ),
    Fault(
        "The same happens where batch and rows of an operand are parts of one axis that a transpose moved.",
        canary="padded_split",
    ),
    Fault(
        "The same happens to a tensor that an op reads together with the results of a batched product, if another op "
        "computes it for batch and columns as one axis: the sums of a grouped convolution's filters.",
        canary="padded_epilogue",
    ),
    Fault(
        "With a dynamic number of rows, what a reader of a batched product has computed of the rows, as their sums for "
        "a zero point, has padding that is read and that nothing has written.",
        canary="padded_sums",
    ),
)

_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
_MERGED = ("linalg.generic", "linalg.broadcast")  # ops whose loops IREE merges
_TRANSPOSE = "linalg.transpose"

# The most rows of a tile on any CPU: a number of rows that is a multiple of it is not padded.
_TILE = 16


@dataclass(frozen=True)
class StoreBatchesPass(Pass):
    """Put a fusion barrier behind each operand of a batched product that another op computes, unless its rows are whole
    tiles, and behind the tensors that other ops compute for readers of the results. IREE 3.13 then packs tensors in
    memory, which it does correctly.

    A batch of dynamic size is unchanged: IREE does not pack it (`choose_data_tiling.py`).
    """

    name: ClassVar[str] = "qmlir-store-batches"
    summary: ClassVar[str] = "compute an operand of a batched product in a separate dispatch where its rows are padded"

    def run(self, module: ir.Module, state: State) -> None:
        for c in find_contractions(module):
            op = c.operation
            if c.kind != "matmul" or set(c.batch) <= {1} or None in c.batch or "compilation_info" in op.attributes:
                continue
            padded = [i for i in range(2) if _padded(c, i)]
            read = [place for place in (_reader(op, i) for i in padded) if _maker(*place) is not None]
            for reader, number in [*read, *(_read_with(op) if padded else ())]:
                with reader.location, ir.InsertionPoint(reader):
                    reader.operands[number] = fusion_barrier(reader.operands[number], Reason.PADDED_BATCH)


def _maker(reader: OpLike, number: int) -> OpLike | None:
    """The op that computes an operand, if it is a transpose or an op whose loops IREE merges; else None."""
    return made_by(behind(reader.operands[number], *_VIEWS), *_MERGED, _TRANSPOSE)


def _reader(op: OpLike, number: int) -> tuple[OpLike, int]:
    """The op and the number of its operand that need the barrier for an operand of a product: the first of the
    transposes that make the operand, because IREE packs a transpose like a tensor in memory. If a view splits an axis
    of a transpose's result, the reader behind that transpose needs the barrier."""
    while (transposed := made_by(behind(op.operands[number], *_VIEWS), _TRANSPOSE)) is not None:
        if _splits(op.operands[number]):
            break
        op, number = transposed, 0
    return op, number


def _read_with(op: OpLike) -> list[tuple[OpLike, int]]:
    """The operands, as (reader, operand number), that other ops read together with an op's results, and that are
    computed from other values than the results."""
    results, found = {op.results[0]}, []
    todo = list(results)
    while todo:
        for reader in {use.owner.operation for use in todo.pop().uses}:
            if not reader.results or reader.results[0] in results:
                continue
            if reader.name in (*_VIEWS, _TRANSPOSE) or is_elementwise(reader):
                results.add(reader.results[0])
                todo.append(reader.results[0])
            elif reader.name != "linalg.generic":
                continue
            found += [(reader, i) for i in range(len(reader.operands) - len(reader.results))]

    def comes_of_results(maker: OpLike) -> bool:
        return any(behind(v, *_VIEWS) in results for v in [*maker.results, *maker.operands])

    return [place for place in found if (maker := _maker(*place)) is not None and not comes_of_results(maker)]


def _splits(value: ir.Value) -> bool:
    """Whether one of the views that make a value splits an axis into several of more than one element."""
    while (view := made_by(value, *_VIEWS)) is not None:
        shape = ir.RankedTensorType(value.type).shape
        if view.name == "tensor.expand_shape" and any(sum(shape[i] != 1 for i in g) > 1 for g in reassociation(view)):
            return True
        value = view.operands[0]
    return False


def _padded(c: Contraction, operand: int) -> bool:
    """Whether the rows of an operand, along its loop that is neither batch nor summed, are not whole tiles."""
    loops = [loop for e in indexing_maps(c.operation)[operand].results for loop in loops_of(e)]
    rows = [c.sizes[i] for i in loops if c.roles[i] in "mn"]
    return any(size is None or size % _TILE for size in rows)
