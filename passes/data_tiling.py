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
    may be statically non-positive"). A sum over a float tensor of three axes with a dynamic one counts: IREE makes a
    product with a batch of it where what is summed is a product of elements (a masked mean). Where there is nothing to
    mark the mark goes to what the others start from, which is never packed. Other programs are left alone."""

    name: ClassVar[str] = "qmlir-choose-data-tiling"
    summary: ClassVar[str] = "keep products with a dynamic batch out of data tiling"

    def run(self, module: Any, state: State) -> None:
        products = [c for c in find_contractions(module) if c.kind == "matmul"]
        if not any(None in c.batch for c in products) and not _sums(module):
            return
        packed = [c.op for c in products if None not in c.batch and "compilation_info" not in c.op.attributes]
        for op in packed or _starts(module):
            op.attributes[HINT] = ir.UnitAttr.get()


def _sums(module: Any) -> bool:
    """Whether the module reduces a tensor of floats with three axes or more, one of them dynamic."""
    found = False

    def visit(op: Any) -> Any:
        nonlocal found
        if op.name == "linalg.generic" and "reduction" in str(op.attributes["iterator_types"]):
            found = found or _batched(op.operands[0].type)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _batched(t: Any) -> bool:
    if not isinstance(t, ir.RankedTensorType) or not isinstance(t.element_type, ir.FloatType):
        return False
    return t.rank > 2 and any(t.is_dynamic_dim(i) for i in range(t.rank))


def _starts(module: Any) -> list[Any]:
    """The `tensor.empty` of a module: one at least outlives the passes before IREE looks for marks."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "tensor.empty":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found
