"""qmlir-split-broadcast: separate a reduction from a dispatch that broadcasts its result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.affine import indexing_maps, loops_of
from ....ir.attributes import loop_kinds
from ....ir.barriers import Reason, fusion_barrier, fusion_barrier_behind
from ....ir.walk import BARRIERS, VIEWS, behind, collect, producer, read_by, sources
from ...base import Pass, State
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "For SPIR-V, IREE tiles a sum and the op that broadcasts its result by the loops of the sum: all tiles but the "
        "first read memory that was never written.",
        canary="broadcast_sum",
    ),
    Fault(
        "For SPIR-V, IREE computes what a sum reads several times in the sum's dispatch, by some threads, and others "
        "read it without a barrier: results change from call to call.",
        canary="counted_places",
    ),
)


# What IREE looks through when it fuses: results that are the same data, or one element from one.
_PARTS = (*VIEWS, "tensor.extract_slice")


@dataclass(frozen=True)
class SplitBroadcastPass(Pass):
    """Puts a fusion barrier between a reduction and a linalg op that reads its result in more loops than the reduction
    has; and behind what is computed in fewer loops than a reduction reads it in.

    IREE 3.13's SPIR-V pipeline `BaseDistribute` tiles both in one dispatch by the loops of the reduction, and all but
    the first tile of the broadcast read unwritten memory: sums over K of a batched weight gave wrong corrections for
    zero points, without an error. What a reduction reads in more loops than it has is computed by some threads and read
    by others, which do not wait for them: counts of a histogram changed from call to call.
    """

    name: ClassVar[str] = "qmlir-split-broadcast"
    summary: ClassVar[str] = "keep a reduction and the op that broadcasts its result in separate dispatches"

    def run(self, module: ir.Module, state: State) -> None:
        contractions = [c.op for c in find_contractions(module)]
        reductions = collect(
            module, "linalg.generic", where=lambda op: "reduction" in _kinds(op) and op not in contractions
        )
        for op in reductions:
            kept = _kinds(op).count("parallel")
            for result in op.results:
                if any(_kinds(reader).count("parallel") > kept for reader in _readers(result)):
                    fusion_barrier_behind(result, Reason.BROADCAST_SUM)
            for reader, number in _repeated(op):
                with ir.InsertionPoint(reader), reader.location:
                    reader.operands[number] = fusion_barrier(reader.operands[number], Reason.BROADCAST_SUM)


def _repeated(op: OpLike) -> list[tuple[OpLike, int]]:
    """What is computed of fewer loops than a reduction, or the elementwise ops before it, read it in: by reader and
    number of its operand."""
    found, readers = [], [op]
    for reader in readers:
        for i, m in enumerate(indexing_maps(reader)[: len(reader.operands) - len(reader.results)]):
            made = producer(behind(reader.operands[i], *VIEWS))
            if made is None or made.name != "linalg.generic" or "reduction" in _kinds(made) or not read_by(made):
                continue
            if {loop for e in m.results for loop in loops_of(e)} == set(range(m.n_dims)):
                readers += [made] if made not in readers else []
            elif not _is_of_sums(made):
                found.append((reader, i))
    return found


def _is_of_sums(op: OpLike) -> bool:
    """Whether elementwise ops make a value of a reduction's result: that is in memory."""
    return any(_ends(made) for value in sources(op.results, _elementwise_operands) if (made := producer(value)))


def _ends(op: OpLike) -> bool:
    return op.name in BARRIERS or "reduction" in _kinds(op)


def _elementwise_operands(op: OpLike) -> Iterable[ir.Value]:
    return op.operands if op.name in VIEWS or (_kinds(op) and not _ends(op)) else ()


def _kinds(op: OpLike) -> list[str]:
    """`parallel` or `reduction` for each loop; [] for what is not a generic."""
    return loop_kinds(op) if "iterator_types" in op.attributes else []


def _readers(value: ir.Value) -> list[OpLike]:
    """The generics that read a value, or what elementwise ops and views make of it."""
    found: list[OpLike] = []
    values = [value]
    for one in values:
        for use in one.uses:
            op = use.owner.operation
            if op.name == "linalg.generic":
                found.append(op)
            if op.name in _PARTS or (op.name == "linalg.generic" and "reduction" not in _kinds(op)):
                values += [result for result in op.results if result not in values]
    return found
