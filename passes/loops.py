"""qmlir-check-loops: no sum is longer than what the device runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .._mlir import ir, linalg
from .base import Diagnostic, Pass, State, error_at, fail
from .groups import find_contractions


@dataclass(frozen=True)
class CheckLoopsPass(Pass):
    """Refuses reductions of more than `longest` elements, contractions aside (their strategies tile them).

    Mesa's llvmpipe, on which lavapipe stands, leaves a shader's loop after 65535 iterations
    (LP_MAX_TGSI_LOOP_ITERATIONS): a longer sum would silently lack its rest.
    """

    name: ClassVar[str] = "qmlir-check-loops"
    summary: ClassVar[str] = "refuse reductions that are longer than the device's loops"

    longest: int = 65535

    def run(self, module: Any, state: State) -> None:
        contractions = [c.op for c in find_contractions(module)]
        found: list[Diagnostic] = []

        def visit(op: Any) -> Any:
            if op.name == "linalg.generic" and op not in contractions:
                length = _reduced(op)
                if length > self.longest:
                    found.append(
                        error_at(
                            op,
                            f"a reduction over {length} elements is longer than the loops of this device, which stop "
                            f"after {self.longest}; reduce rows or groups instead of the whole tensor",
                        )
                    )
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        fail(self.name, found)


def _reduced(op: Any) -> int:
    """Product of the static sizes of the reduction loops, 1 where there are none."""
    kinds = [str(k) for k in op.attributes["iterator_types"]]
    sizes: dict[int, int] = {}
    for operand, attribute in zip(op.operands, linalg.get_indexing_maps(op), strict=True):
        t = operand.type
        for axis, expression in enumerate(attribute.value.results):
            if isinstance(expression, ir.AffineDimExpr) and not t.is_dynamic_dim(axis):
                sizes[expression.position] = t.get_dim_size(axis)
    length = 1
    for loop, kind in enumerate(kinds):
        if "reduction" in kind:
            length *= sizes.get(loop, 1)
    return length
