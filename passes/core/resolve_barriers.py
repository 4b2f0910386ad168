"""qmlir-resolve-barriers: drop the fusion barriers that the target does not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core.mlir import ir
from ...ir.barriers import BARRIER_REASON, PER_TARGET
from ...ir.walk import collect, producer
from ...targets import resolve
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike


@dataclass(frozen=True)
class ResolveBarriersPass(Pass):
    """A fusion barrier states why a tensor must be computed in a dispatch of its own. If the reason applies to some
    targets only (`PER_TARGET`) and not to this one, the barrier is dropped, and the tensor may fuse with its
    readers.
    """

    name: ClassVar[str] = "qmlir-resolve-barriers"
    summary: ClassVar[str] = "drop the fusion barriers that the target does not need"

    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        dropped = {reason.value for reason in PER_TARGET - set(resolve(self.target).barriers)}
        for op in collect(module, "util.optimization_barrier", where=lambda op: _reason(op) in dropped):
            _drop(op)


def _reason(op: OpLike) -> str:
    return str(ir.StringAttr(op.attributes[BARRIER_REASON]).value) if BARRIER_REASON in op.attributes else ""


def _drop(op: OpLike) -> None:
    """Drop a barrier. Its other attributes move to the op that produces its operand."""
    (source,) = op.operands
    ties = [use.owner.operation for use in op.results[0].uses if use.owner.operation.name == "flow.tensor.tie_shape"]
    made = producer(source)
    for old in (*ties, op):
        if made is not None:
            for name in old.attributes:
                if name != BARRIER_REASON:
                    made.attributes[name] = old.attributes[name]
        old.results[0].replace_all_uses_with(source)
        old.erase()
