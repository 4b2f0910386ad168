"""qmlir-row-kernels: replace layer norms, dynamic quantisation and neighbouring ops with a kernel of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...ir.facts import ROWS
from ...ir.walk import functions, operations_of, producer, read_by
from ...kernels.rows import RowGroup, find
from ...targets import backend_of, resolve
from ...targets.strategy import first_plan
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike, ir

_SHORTEST_ROW = 8  # elements of a row: the shortest vector of any target
# Ops that may be moved behind a group, because they have no side effects.
_PURE = (
    "linalg.",
    "tensor.",
    "arith.",
    "math.",
    "flow.dispatch",
    "flow.tensor.",
    "util.global.load",
    "iree_linalg_ext.",
)


@dataclass(frozen=True)
class RowKernelsPass(Pass):
    """Replaces each group of elementwise ops and reductions along rows with a kernel of the target that accepts it."""

    name: ClassVar[str] = "qmlir-row-kernels"
    summary: ClassVar[str] = "compute norms and dynamic quantisation along rows by a kernel of the target"
    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        target = resolve(self.target)
        strategies = backend_of(target).rows_strategies(target)
        if not strategies:
            return
        for function in functions(module):
            block = function.regions[0].blocks[0]
            for rows in find(block, _SHORTEST_ROW):
                plan = first_plan(strategies, rows)
                if plan is None or _partially_covered(rows):
                    continue
                last = _last(rows, block)
                if last is None:
                    continue
                with last.context, last.location:
                    plan.apply(last)


def _partially_covered(rows: RowGroup) -> bool:
    """Whether only part of a dynamic quantisation is in the group: whole, it has a better form (`qmlir-fuse-rows`)."""
    for op in rows.operations:
        if ROWS not in op.attributes:
            continue
        near: list[OpLike] = [u.owner.operation for v in op.results for u in v.uses]
        near += [made for made in map(producer, op.operands) if made is not None]
        if any(ROWS in n.attributes and n not in rows.operations for n in near):
            return True
    return False


def _last(rows: RowGroup, block: ir.Block) -> OpLike | None:
    """The group's last op, after moving the consumers in between behind it; None if one of them cannot be moved."""
    operations = operations_of(block)
    places = [i for i, op in enumerate(operations) if op in rows.operations]
    late = {v for v, _ in rows.outputs}
    moving = []
    for op in operations[places[0] : places[-1]]:
        if op in rows.operations or not any(v in late for v in read_by(op)):
            continue
        if not op.name.startswith(_PURE):
            return None
        moving.append(op)
        late.update(op.results)
    anchor = operations[places[-1]]
    for op in moving:
        op.move_after(anchor)
        anchor = op
    return operations[places[-1]]
