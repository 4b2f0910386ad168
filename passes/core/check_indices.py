"""qmlir-check-indices: end a program with an error if an index that it computes is outside of its table.

Indices in arguments are checked before the call (`qmlir/ir/lookups.py`). This pass checks indices that the program
computes, such as positions counted from a mask. IREE itself reads, and scatters, wherever an index points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import ir, tensor
from ...core.spelling import location_text
from ...dialect.ops.common import shape_of
from ...ir.barriers import Reason, fusion_barrier
from ...ir.bounds import Bounds
from ...ir.build import Arg, index
from ...ir.checks import assert_at_most, outside, refuse
from ...ir.signature import unchecked_indices
from ...ir.walk import producer, read_by
from ..base import Pass, State

if TYPE_CHECKING:
    from ...ir.lookups import Computed, Walked


@dataclass(frozen=True)
class CheckIndicesPass(Pass):
    """Adds a check only if an index depends on the contents of arguments and its bounds do not show that it is inside:
    the check is a reduction that the host waits for. Also checks the length of an axis whose positions are looked up in
    a table."""

    name: ClassVar[str] = "qmlir-check-indices"
    summary: ClassVar[str] = "compare computed indices with the sizes of the tables that they are looked up in"

    def run(self, module: ir.Module, state: State) -> None:
        bounds = Bounds()
        narrowest: dict[ir.Value, Computed] = {}  # for each tensor of indices, its smallest table
        computed, walked = unchecked_indices(module)
        for found in computed:
            low, high = bounds.of_tensor(found.tensor)
            if (found.least <= low and high <= found.most) or not _depends(found.tensor):
                continue
            known = narrowest.get(found.tensor, found)
            narrowest[found.tensor] = max(known, found, key=lambda c: (c.least, -c.most))
        for indices, found in narrowest.items():
            _check(indices, found)
        for axis in walked:
            _check_size(axis)


def _depends(value: ir.Value) -> bool:
    """Whether a value depends on the contents of an argument of the function, not only on its sizes."""
    left, seen = [value], {value}
    while left:
        op = producer(left.pop())
        if op is None:
            return True
        needed = set() if op.name == "tensor.dim" else set(read_by(op)) - seen
        left += needed
        seen |= needed
    return False


def _check(indices: ir.Value, found: Computed) -> None:
    owner = indices.owner
    if isinstance(owner, ir.Block) or owner.operation.parent.name != "func.func":
        return
    rank = len(shape_of(indices))
    place = location_text(found.op.location)
    message = f"a computed index is outside of the axis of {found.size} elements that it is for"
    with ir.InsertionPoint.after(owner.operation), owner.operation.location:
        compared = fusion_barrier(indices, Reason.COMPARED)
        refuse([Arg(compared, tuple(range(rank)))], rank, lambda x: outside(x, found.least, found.most),
               f"{message} ({place})" if place else message)  # fmt: skip


def _check_size(walked: Walked) -> None:
    generic = walked.op.parent if walked.op.name == "tensor.extract" else walked.op
    place = location_text(walked.op.location)
    message = f"there are more than the {walked.most} positions that a table is for"
    with ir.InsertionPoint(generic), generic.location:
        size = tensor.dim(walked.tensor, index(walked.axis))
        assert_at_most([size], walked.most, f"{message} ({place})" if place else message)
