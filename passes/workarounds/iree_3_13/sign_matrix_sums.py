"""qmlir-sign-matrix-sums: signed sums of cooperative matrices of signed codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.mlir import ir
from ....ir.walk import collect
from ...base import Pass, State

_PRODUCT = "spirv.KHR.CooperativeMatrixMulAdd"
_OPERANDS = "matrix_operands"
_CODES, _SUMS = {"ASigned", "BSigned"}, ("CSigned", "ResultSigned")


@dataclass(frozen=True)
class SignMatrixSumsPass(Pass):
    """Runs when IREE has translated the executables (`Target.code_passes`). MLIR's `gpu.subgroup_mma_compute` says of
    integer operands which are signed, and says nothing of the sums (`MatrixCSignedComponentsKHR`,
    `MatrixResultSignedComponentsKHR` of SPV_KHR_cooperative_matrix). A product of i8 with sums of i32 is then none that
    a device lists, and Mesa's lavapipe takes its codes as unsigned. IREE 3.13 refuses SPIR-V's own operations in what
    it compiles, so the two are set in those that it made, before it writes them as words."""

    name: ClassVar[str] = "qmlir-sign-matrix-sums"
    summary: ClassVar[str] = "mark the sums of signed cooperative matrices as signed (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, _PRODUCT):
            text = str(op.attributes[_OPERANDS]) if _OPERANDS in op.attributes else "<>"  # floats have no signs
            if set(text[text.index("<") + 1 : -1].split("|")) == _CODES:
                op.attributes[_OPERANDS] = ir.Attribute.parse(f"{text[:-1]}|{'|'.join(_SUMS)}>")
