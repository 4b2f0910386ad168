"""qmlir-choose-data-tiling: choose the products that IREE packs if it cannot pack all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.attributes import is_elementwise
from ....ir.walk import outside_kernels
from ....targets.tensors import computed
from ...base import Pass, State
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike
    from ....targets.strategy import Contraction

FAULTS = (
    Fault(
        "IREE packs a product that sums over a dynamic size together with the op that computes its operand, and "
        "divides by a size of 0 there (`no basis element may be statically non-positive`).",
        canary="dynamic_sum",
    ),
)


HINT = "iree.opt.data_tiling"


@dataclass(frozen=True)
class ChooseDataTilingPass(Pass):
    """Mark the products that IREE may pack in a program with products that it must not pack.

    IREE 3.13 packs all products if none is marked for data tiling. If a product sums over a dynamic size, IREE fuses it
    with the op that computes its operand and generates undefined code ("no basis element may be statically
    non-positive", an error that IREE reports only if it verifies its passes: `QMLIR_VERIFY_IREE`). In a program with
    such a product, or with one that has a batch of dynamic size (attention), this pass marks the other products. A sum
    over a float tensor of three axes or more, one of them dynamic, counts as such a product, because IREE forms one if
    the summed value is a product of elements (a masked mean). If there is no product to mark, the pass marks the
    `tensor.empty` ops, which are never packed. Other programs are unchanged.
    """

    name: ClassVar[str] = "qmlir-choose-data-tiling"
    summary: ClassVar[str] = "keep products with a dynamic batch or sum out of data tiling"

    def run(self, module: ir.Module, state: State) -> None:
        products = [c for c in find_contractions(module) if c.kind == "matmul"]
        if not any(map(_stays_unpacked, products)) and not _sums(module):
            return
        packed = [
            c.operation for c in products if not _stays_unpacked(c) and "compilation_info" not in c.operation.attributes
        ]
        for op in packed or _starts(module):
            op.attributes[HINT] = ir.UnitAttr.get()


def _stays_unpacked(c: Contraction) -> bool:
    return None in c.batch or (c.k is None and any(computed(v) for v in list(c.operation.operands)[:2]))


def _sums(module: ir.Module) -> bool:
    """Whether the module reduces a tensor of floats with three axes or more, one of them dynamic."""
    return any(
        _batched(op.operands[0].type) for op in outside_kernels(module, "linalg.generic") if not is_elementwise(op)
    )


def _batched(t: ir.Type) -> bool:
    if not isinstance(t, ir.RankedTensorType) or not isinstance(t.element_type, ir.FloatType):
        return False
    return t.rank > 2 and any(t.is_dynamic_dim(i) for i in range(t.rank))


def _starts(module: ir.Module) -> list[OpLike]:
    """The `tensor.empty` ops of a module: at least one survives the passes that run before IREE looks for marks."""
    return outside_kernels(module, "tensor.empty")
