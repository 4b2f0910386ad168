"""qmlir-check-scaled-products: check that scaled products use the scaled matrix instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.walk import collect
from ...base import Diagnostic, Pass, State, error_at, fail
from .shared_memory import exports

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE makes conversions and another product of a scaled contraction whose scales are equal constants.",
        canary="equal_scales",
    ),
)


_MARK = "scaled_product"  # on the exports of executables
_SCALED = "arith.scaling_extf"
_INSTRUCTION = "rocdl.mfma.scale.f32.16x16x128.f8f6f4"
_CONVERSIONS = "rocdl.cvt.scalef32."  # what IREE makes of the scaling without the instruction


@dataclass(frozen=True)
class CheckScaledProductsPass(Pass):
    """Runs on the executables that IREE forms (`Target.source_passes`), where it marks those with a scaled contraction,
    and on the translated ones (`Target.code_passes`), where it looks for the instruction in the marked ones. The codes
    of these contractions are in the order of the lanes of `v_mfma_scale_f32_16x16x128_f8f6f4`; any other code would
    compute another product, and is refused.
    """

    name: ClassVar[str] = "qmlir-check-scaled-products"
    summary: ClassVar[str] = "refuse a scaled product that does not use the scaled matrix instruction (ROCm)"

    def run(self, module: ir.Module, state: State) -> None:
        found: list[Diagnostic] = []
        for variant, export in exports(module):
            if _MARK in export.attributes:
                del export.attributes[_MARK]
                names = _names(variant)
                if _INSTRUCTION not in names or any(name.startswith(_CONVERSIONS) for name in names):
                    found.append(error_at(export, "IREE made no v_mfma_scale_f32_16x16x128_f8f6f4 of a scaled product "
                                                  f"({export.attributes['sym_name'].value}), for which its codes are "
                                                  "ordered; without it the product would be another"))  # fmt: skip
            elif _SCALED in _names(variant):
                export.attributes[_MARK] = ir.UnitAttr.get()
        fail(self.name, found)


def _names(variant: OpLike) -> set[str]:
    """Those of the operations in a variant's executable."""
    return {op.name for op in collect(variant)}
