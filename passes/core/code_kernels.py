"""qmlir-code-kernels: replace elementwise ops from 8-bit codes to 8-bit codes with a kernel of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...ir.facts import ROWS
from ...ir.walk import functions, operations_of
from ...kernels import code_pooling, pointwise
from ...targets import backend_of, resolve
from ...targets.strategy import GroupStrategy, first_plan
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike, ir

_Codes = pointwise.Pointwise | code_pooling.CodePooling


@dataclass(frozen=True)
class CodeKernelsPass(Pass):
    """Asks the target's kernels about each chain of elementwise ops that begins and ends with 8-bit codes: dequantise,
    compute in f32, quantise. A chain with one input tensor becomes a table of 256 codes, evaluated as in the reference.
    A MaxPool of dequantised codes becomes a MaxPool of the codes.
    """

    name: ClassVar[str] = "qmlir-code-kernels"
    summary: ClassVar[str] = "replace elementwise ops and poolings of codes by a lookup table or a kernel of the target"
    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        target = resolve(self.target)
        strategies = backend_of(target).codes_strategies(target)
        if not strategies:
            return
        for function in functions(module):
            block = function.regions[0].blocks[0]
            for op in operations_of(block):
                _take(op, code_pooling.find(op), strategies)
            for op in reversed(operations_of(block)):
                if op.name != "linalg.generic" or ROWS in op.attributes:
                    continue
                if not any(list(r.uses) for r in op.results):  # its only use was in a chain that a kernel has replaced
                    op.erase()
                    continue
                group = pointwise.find(op)
                if group is not None and any(ROWS in step.op.attributes for step in group.steps):
                    continue
                if _take(op, group, strategies):
                    op.erase()


def _take(op: OpLike, group: _Codes | None, strategies: Sequence[GroupStrategy[_Codes]]) -> bool:
    """Whether a kernel computes the group; its result then replaces that of `op`."""
    if group is None:
        return False
    plan = first_plan(strategies, group)
    if plan is None:
        return False
    with op.context, op.location:
        plan.apply(op)
    return True
