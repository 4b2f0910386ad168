"""qmlir-code-kernels: elementwise ops from 8-bit codes to 8-bit codes by a kernel of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...kernels.pointwise import find
from ...strategy import Accept
from ...targets import resolve
from ..base import Pass, State
from .lower.dynamic import ROWS


@dataclass(frozen=True)
class CodeKernelsPass(Pass):
    """Asks the target's kernels about each chain of elementwise ops that begins and ends with 8-bit codes: dequantised,
    computed in f32, quantised. A chain of one tensor is a table of 256 codes, evaluated as the reference does."""

    name: ClassVar[str] = "qmlir-code-kernels"
    summary: ClassVar[str] = "elementwise ops between codes by a table or a kernel of the target"

    target: str = "cpu"

    def run(self, module: Any, state: State) -> None:
        strategies = resolve(self.target).pointwise_strategies()
        if not strategies:
            return
        for function in module.body.operations:
            if function.operation.name != "func.func" or not function.operation.regions[0].blocks:
                continue
            for op in reversed([o.operation for o in function.operation.regions[0].blocks[0].operations]):
                _replace(op, strategies)


def _replace(op: Any, strategies: Any) -> None:
    if op.name != "linalg.generic":
        return
    if not any(list(r.uses) for r in op.results):  # only a chain behind it read it
        op.erase()
        return
    group = None if ROWS in op.attributes else find(op)
    if group is None or any(ROWS in step.op.attributes for step in group.steps):
        return
    for strategy in strategies:
        answer = strategy.consider(group)
        if isinstance(answer, Accept):
            with op.context, op.location:
                answer.plan.apply(op)
            op.erase()
            return

