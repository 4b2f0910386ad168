"""qmlir-check-scaled-products: products whose codes are in an instruction's order are made with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.mlir import ir
from ....ir.walk import collect
from ...base import Diagnostic, Pass, State, error_at, fail
from .shared_memory import exports

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_MARK = "scaled_product"  # on the exports of executables
_SCALED = "arith.scaling_extf"
_INSTRUCTION = "rocdl.mfma.scale.f32.16x16x128.f8f6f4"
_CONVERSIONS = "rocdl.cvt.scalef32."  # what IREE makes of the scaling without the instruction


@dataclass(frozen=True)
class CheckScaledProductsPass(Pass):
    """Runs when IREE has formed the executables (`Target.source_passes`), where it marks those that hold a scaled
    contraction, and again when it has translated them (`Target.code_passes`), where it looks for the instruction in
    those that are marked. The codes of these contractions lie along K in the order in which the lanes of
    `v_mfma_scale_f32_16x16x128_f8f6f4` hold them: anything else that IREE makes of one computes another product, and is
    refused."""

    name: ClassVar[str] = "qmlir-check-scaled-products"
    summary: ClassVar[str] = "refuse a scaled product that is not made with the scaled matrix instruction (ROCm)"

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
