"""qmlir-sign-matrix-sums: mark the accumulators of signed cooperative matrices as signed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.walk import collect
from ...base import Pass, State

FAULTS = (
    Fault(
        "MLIR marks the operands of cooperative matrix products as signed, but not their accumulators.",
        canary="signed_sums",
        upstream="https://github.com/llvm/llvm-project/pull/197932",
    ),
)


_PRODUCT = "spirv.KHR.CooperativeMatrixMulAdd"
_OPERANDS = "matrix_operands"
_CODES, _SUMS = {"ASigned", "BSigned"}, ("CSigned", "ResultSigned")


@dataclass(frozen=True)
class SignMatrixSumsPass(Pass):
    """Runs on the executables that IREE has translated (`Target.code_passes`). MLIR's `gpu.subgroup_mma_compute` marks
    which integer operands are signed, but not the accumulators (`MatrixCSignedComponentsKHR`,
    `MatrixResultSignedComponentsKHR` of SPV_KHR_cooperative_matrix). Devices list no product of i8 with unsigned i32
    accumulators, and Mesa's lavapipe reads the codes as unsigned. IREE 3.13 does not accept SPIR-V operations in its
    input, so this pass sets the two flags in IREE's output, before it is serialised.
    """

    name: ClassVar[str] = "qmlir-sign-matrix-sums"
    summary: ClassVar[str] = "mark the accumulators of signed cooperative matrices as signed (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, _PRODUCT):
            text = str(op.attributes[_OPERANDS]) if _OPERANDS in op.attributes else "<>"  # floats have no signs
            if set(text[text.index("<") + 1 : -1].split("|")) == _CODES:
                op.attributes[_OPERANDS] = ir.Attribute.parse(f"{text[:-1]}|{'|'.join(_SUMS)}>")
