"""qmlir-check-indices: a program ends with an error where an index that it computes is outside of a table.

What arguments hold is compared before the call (`qmlir/ir/lookups.py`); this is about numbers in between, such as the
positions that are counted from a mask. IREE reads, and scatters, wherever an index points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import ir
from ...core.spelling import location_text
from ...dialect.ops.common import shape_of
from ...ir.bounds import Bounds
from ...ir.build import Arg
from ...ir.checks import outside, refuse
from ...ir.signature import computed_indices
from ...ir.walk import producer, read_by
from ..base import Pass, State

if TYPE_CHECKING:
    from ...ir.lookups import Computed


@dataclass(frozen=True)
class CheckIndicesPass(Pass):
    """Only where an index depends on what arguments hold and its bounds do not show that it is inside: the check is a
    reduction that the host waits for."""

    name: ClassVar[str] = "qmlir-check-indices"
    summary: ClassVar[str] = "compare computed indices with the sizes of the tables that they are looked up in"

    def run(self, module: ir.Module, state: State) -> None:
        bounds = Bounds()
        narrowest: dict[ir.Value, Computed] = {}  # of those that are looked up in several tables
        for found in computed_indices(module):
            low, high = bounds.of_tensor(found.tensor)
            if (found.least <= low and high <= found.most) or not _depends(found.tensor, {}):
                continue
            known = narrowest.get(found.tensor, found)
            narrowest[found.tensor] = max(known, found, key=lambda c: (c.least, -c.most))
        for tensor, found in narrowest.items():
            _check(tensor, found)


def _depends(value: ir.Value, known: dict[ir.Value, bool]) -> bool:
    """Whether a value depends on what an argument of the function holds, not only on its sizes."""
    if value not in known:
        op = producer(value)
        known[value] = op is None or (op.name != "tensor.dim" and any(_depends(v, known) for v in read_by(op)))
    return known[value]


def _check(tensor: ir.Value, found: Computed) -> None:
    owner = tensor.owner
    if isinstance(owner, ir.Block) or owner.operation.parent.name != "func.func":
        return
    rank = len(shape_of(tensor))
    place = location_text(found.op.location)
    message = f"a computed index is outside of the axis of {found.size} elements that it is for"
    with ir.InsertionPoint.after(owner.operation), owner.operation.location:
        refuse([Arg(tensor, tuple(range(rank)))], rank, lambda x: outside(x, found.least, found.most),
               f"{message} ({place})" if place else message)  # fmt: skip
