"""The instructions of AMD's GPUs that kernels use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....core.mlir import OpLike, arith, ir, llvm
from ....kernels.bodies import BodyCloner, Rule
from ...base import Target


def _intrinsic(name: str, arguments: list[ir.Value], result: ir.Type) -> ir.Value:
    return llvm.CallIntrinsicOp(result, name, arguments, [], []).operation.results[0]


def _mulf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A product that LLVM may not contract with a following sum: the epilogues of docs/semantics.md round both."""
    return llvm.ArithmeticFenceOp(arith.mulf(*operands)).result


def _roundeven(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """`v_rndne_f32`."""
    return _intrinsic("llvm.roundeven", operands, operands[0].type)


@dataclass(frozen=True)
class Amd:
    """One architecture: CDNA runs 64 threads together, RDNA is asked for 32.

    Attributes:
        cdna: whether it is made for computing: MFMA, and accumulators in registers of their own.
    """

    arch: str
    cdna: bool

    @property
    def subgroup(self) -> int:
        """See `gpu_kernels.machine.Machine`."""
        return 64 if self.cdna else 32

    @property
    def rules(self) -> Mapping[str, Rule]:
        """See `gpu_kernels.machine.Machine`."""
        return {"arith.mulf": _mulf, "math.roundeven": _roundeven}

    @property
    def bf16_as_bits(self) -> bool:
        """See `gpu_kernels.machine.Machine`."""
        return False

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`v_dot4_i32_i8`, or from RDNA3 on `v_dot4_i32_iu8` with a sign for each side."""
        i1 = ir.IntegerType.get_signless(1)
        no = arith.constant(i1, 0)
        if self.cdna:
            return _intrinsic("llvm.amdgcn.sdot4", [a, b, total, no], total.type)
        yes = arith.constant(i1, 1)
        return _intrinsic("llvm.amdgcn.sudot4", [yes, a, yes, b, total, no], total.type)


def amd(target: Target) -> Amd:
    """The instructions of a target."""
    return Amd(target.name, "mfma" in target.features)
