"""When a kernel on cooperative matrices takes a contraction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....strategy import Accept, Contraction, Decline
from ...base import Target
from ...gpu import Mma, parse_mma
from ...gpu_kernels.strategy import considered, decoded_type, unreadable, unsupported
from ...roofline import kernel_estimate
from .machine import Spirv

if TYPE_CHECKING:
    from ....dialect.dtypes import Array
    from ....kernels.description import Kernel
    from ...gpu_kernels.weights import Codes
    from .matrix import CooperativeKernel


_MOST = 32  # instructions of a step: more of them take drivers long to compile


@dataclass(frozen=True)
class CooperativePlan:
    """A kernel in the place of the contraction and of what is fused with it."""

    kernel: Kernel
    codes: Array  # [N, K]
    weights: Codes
    depth: int
    matrix: Mma
    machine: Spirv

    def _plan(self) -> CooperativeKernel:
        from .matrix import CooperativeKernel

        return CooperativeKernel(self.kernel, self.weights, self.depth, self.matrix, self.machine)

    def apply(self, op: Any) -> None:
        from ...._mlir import ir
        from ....kernels.order import arranged
        from ....kernels.outline import outline
        from ...gpu_kernels.weights import packed

        size = ir.IntegerType.get_signless(32)
        plan = self._plan()
        outline(
            self.kernel, lambda: packed(self.codes, self.weights), plan.emit, size_type=size, arrange=arranged
        )  # fmt: skip

    def describe(self) -> Mapping[str, Any]:
        from .matrix import TILE

        return {
            "route": "kernel",
            "algorithm": "cooperative matrix",
            "mma": self.matrix.name,
            "weight_bits": self.weights.bits,
            "workgroup": [TILE, TILE, self.depth],
            "threads": self._plan().threads,
            "fused": len(self.kernel.operations) - 1,
        }


@dataclass(frozen=True)
class CooperativeKernelStrategy:
    """Products by constant weights on devices with cooperative matrices: of codes on those of i8, and of f16 by
    weights that are decoded on those of f16 with sums of f32."""

    target: Target
    machine: Spirv
    name: str = "matrix"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        types = (c.lhs, c.rhs, c.acc)
        if types not in (("i8", "i8", "i32"), ("f16", "f16", "f32")):
            return Decline(f"a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "i8 codes on both sides, or f16 by codes")
        if not self._matrices(*types):
            return Decline(f"{self.target.spelling} has no cooperative matrix of {c.lhs}", "none needed")
        return considered(self, c, planes=True)

    def _matrices(self, lhs: str, rhs: str, acc: str) -> list[Mma]:
        """Those that the kernel is written for, the largest first."""
        kinds = [k for k in map(parse_mma, self.target.mma) if (k.lhs, k.rhs, k.acc) == (lhs, rhs, acc)]
        fitting = [k for k in kinds if k.m in (8, 16, 32) and k.n in (8, 16, 32) and k.k in (8, 16, 32)]
        return sorted(fitting, key=lambda k: (k.m * k.n, k.k), reverse=True)

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        from ....kernels.weights import constant_codes
        from ...gpu_kernels.weights import stored

        decodes = kernel.rhs.decode is not None
        matrices = self._matrices("f16", "f16", "f32") if decodes else self._matrices("i8", "i8", "i32")
        if unfit := unreadable(kernel, 8 if decodes else 16):
            return unfit
        if unfit := unsupported(kernel, self.machine):
            return unfit
        if decodes and decoded_type(kernel) != "f16":
            return Decline("the weight is decoded to another type than the activation's", "the activation's type")
        codes = constant_codes(kernel)
        if codes is None:
            return Decline("the weight is no constant", "make the weight a constant, or a parameter that is baked in")
        least = 8 if decodes else 16  # codes whose bytes, or numbers, are one store to shared memory
        for depth in (32, 16) if decodes else (64, 32, 16):
            matrix = next((m for m in matrices if depth % m.k == 0 and _instructions(m, depth) <= _MOST), None)
            if matrix is None or (kernel.group is not None and kernel.group % depth):
                continue
            for words in (2, 1) if decodes else (4, 2, 1):
                weights = stored(codes, kernel, words)
                if weights is None or depth % weights.depth or weights.depth % least:
                    continue
                if depth == 64 and weights.depth < 64:
                    continue
                plan = CooperativePlan(kernel, codes, weights, depth, matrix, self.machine)
                return Accept(plan, kernel_estimate(self.target, kernel, weights.bits))
        return Decline(f"groups of {kernel.group} along K are no multiple of 16", "a group size of 16 or a multiple")


def _instructions(matrix: Mma, depth: int) -> int:
    """Of a subgroup's step of `depth` along K."""
    from .matrix import WAVE

    return WAVE // matrix.m * (WAVE // matrix.n) * (depth // matrix.k)
