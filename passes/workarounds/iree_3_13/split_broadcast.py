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
        "For SPIR-V, IREE computes an operand that a sum reads repeatedly in the sum's dispatch, in some threads, "
        "and others read it without a barrier: results change from call to call.",
        canary="counted_places",
    ),
)


# Ops that IREE looks through when it fuses: each element of the result is an element of the operand.
_PARTS = (*VIEWS, "tensor.extract_slice")


@dataclass(frozen=True)
class SplitBroadcastPass(Pass):
    """Put a fusion barrier between a reduction and a linalg op that reads its result in more parallel loops than the
    reduction has, and behind a tensor that is computed in fewer loops than a reduction reads it in.

    IREE 3.13's SPIR-V pipeline `BaseDistribute` tiles both in one dispatch by the loops of the reduction, and all but
    the first tile of the broadcast read unwritten memory: sums over K of a batched weight gave wrong corrections for
    zero points, without an error. A tensor that a reduction reads in more loops than the tensor has is computed by some
    threads and read by others without a barrier: counts of a histogram changed from call to call.
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
    """The operands, as (reader, operand number), of a reduction and of the elementwise ops before it that are computed
    in fewer loops than the reader reads them in."""
    found, readers = [], [op]
    for reader in readers:
        for i, m in enumerate(indexing_maps(reader)[: len(reader.operands) - len(reader.results)]):
            made = producer(behind(reader.operands[i], *VIEWS))
            if made is None or made.name != "linalg.generic" or "reduction" in _kinds(made) or not read_by(made):
                continue
            if {loop for e in m.results for loop in loops_of(e)} == set(range(m.n_dims)):
                readers += [made] if made not in readers else []
            elif not _reads_stored(made):
                found.append((reader, i))
    return found


def _reads_stored(op: OpLike) -> bool:
    """Whether elementwise ops compute a value from the result of a reduction or a barrier, which is in memory."""
    return any(_is_stored(made) for value in sources(op.results, _elementwise_operands) if (made := producer(value)))


def _is_stored(op: OpLike) -> bool:
    return op.name in BARRIERS or "reduction" in _kinds(op)


def _elementwise_operands(op: OpLike) -> Iterable[ir.Value]:
    return op.operands if op.name in VIEWS or (_kinds(op) and not _is_stored(op)) else ()


def _kinds(op: OpLike) -> list[str]:
    """`parallel` or `reduction` for each loop; [] for an op that is not a generic."""
    return loop_kinds(op) if "iterator_types" in op.attributes else []


def _readers(value: ir.Value) -> list[OpLike]:
    """The generics that read a value, directly or through elementwise ops and views."""
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
