"""When a kernel on cooperative matrices takes a contraction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....strategy import Accept, Contraction, Decline
from ...base import Target
from ...gpu import parse_mma
from ...gpu_kernels.strategy import considered, unreadable, unsupported
from ...roofline import kernel_estimate
from .machine import Spirv

if TYPE_CHECKING:
    from ....dialect.dtypes import Array
    from ....kernels.description import Kernel
    from ...gpu_kernels.weights import Codes
    from .matrix import CooperativeKernel


@dataclass(frozen=True)
class CooperativePlan:
    """A kernel in the place of the contraction and of what is fused with it."""

    kernel: Kernel
    codes: Array  # [N, K]
    weights: Codes
    depth: int
    machine: Spirv

    def _plan(self) -> CooperativeKernel:
        from .matrix import CooperativeKernel

        return CooperativeKernel(self.kernel, self.weights, self.depth, self.machine)

    def apply(self, op: Any) -> None:
        from ...._mlir import ir
        from ....kernels.outline import outline
        from ...gpu_kernels.weights import packed

        size = ir.IntegerType.get_signless(32)
        outline(self.kernel, lambda: packed(self.codes, self.weights), self._plan().emit, size_type=size)

    def describe(self) -> Mapping[str, Any]:
        from .matrix import TILE

        return {
            "route": "kernel",
            "algorithm": "cooperative matrix",
            "weight_bits": self.weights.bits,
            "workgroup": [TILE, TILE, self.depth],
            "threads": self._plan().threads,
            "fused": len(self.kernel.operations) - 1,
        }


@dataclass(frozen=True)
class CooperativeKernelStrategy:
    """Products of integer codes by constant weights, on devices with cooperative matrices of i8."""

    target: Target
    machine: Spirv
    name: str = "matrix"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        kinds = [k for k in map(parse_mma, self.target.mma) if (k.lhs, k.m, k.n, k.k) == ("i8", 16, 16, 16)]
        if not kinds:
            return Decline(f"{self.target.spelling} has no cooperative matrix of i8", "none needed")
        if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32"):
            return Decline(f"a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "i8 codes on both sides")
        return considered(self, c, planes=True)

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        from ....kernels.weights import constant_codes
        from ...gpu_kernels.weights import stored

        if unfit := unreadable(kernel, 16):
            return unfit
        if unfit := unsupported(kernel):
            return unfit
        codes = constant_codes(kernel)
        if codes is None:
            return Decline("the weight is no constant", "make the weight a constant, or a parameter that is baked in")
        weights = stored(codes, kernel)
        for depth in (64, 32, 16):
            divides = kernel.group is None or kernel.group % depth == 0
            if weights is not None and depth % weights.depth == 0 and weights.depth % 16 == 0 and divides:
                if depth == 64 and weights.depth < 64:
                    continue
                plan = CooperativePlan(kernel, codes, weights, depth, self.machine)
                return Accept(plan, kernel_estimate(self.target, kernel, weights.bits))
        return Decline(f"groups of {kernel.group} along K are no multiple of 16", "a group size of 16 or a multiple")
