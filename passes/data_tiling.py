"""qmlir-choose-data-tiling: which products IREE packs, where it must not pack all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .._mlir import ir
from .base import Pass, State
from .groups import find_contractions

HINT = "iree.opt.data_tiling"


@dataclass(frozen=True)
class ChooseDataTilingPass(Pass):
    """Marks the products without a batch of dynamic size for data tiling in a program that also has one with such a
    batch (attention): IREE 3.13 packs all products when none is marked, and fails to compile those ("no basis element
    may be statically non-positive"). Where there is no such product the mark goes to what the others start from, which
    is never packed. Other programs are left alone."""

    name: ClassVar[str] = "qmlir-choose-data-tiling"
    summary: ClassVar[str] = "keep products with a dynamic batch out of data tiling"

    def run(self, module: Any, state: State) -> None:
        products = [c for c in find_contractions(module) if c.kind == "matmul"]
        if not any(None in c.batch for c in products):
            return
        packed = [c.op for c in products if None not in c.batch and "compilation_info" not in c.op.attributes]
        for op in packed or _starts(module):
            op.attributes[HINT] = ir.UnitAttr.get()


def _starts(module: Any) -> list[Any]:
    """The `tensor.empty` of a module: one at least outlives the passes before IREE looks for marks."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "tensor.empty":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found
