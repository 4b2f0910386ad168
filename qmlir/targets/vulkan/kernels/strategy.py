"""When a kernel on cooperative matrices takes a contraction."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ....core.mlir import ir
from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.weights import constant_codes
from ...base import Target
from ...cost import Cost, Figures, Work
from ...gpu import MatrixInstruction, parse_mma
from ...gpu_kernels.described import described
from ...gpu_kernels.strategy import (
    LOAD,
    GpuKernelPlan,
    considered,
    decoded_type,
    rounds,
    unreadable,
    unsupported,
    with_cost,
)
from ...gpu_kernels.weights import CodeFormat, packed, stored
from ...roofline import kernel_estimate
from ...strategy import Accept, Contraction, Decline, Facts
from .machine import Spirv
from .matrix import TILE, WAVE, CooperativeKernel

# Slots of a subgroup's instructions: the products of its fragments, sixteen codes deep, and in loads of one what it
# reads from shared memory and waits at barriers in a step.
_MULTIPLY = 128
_SHARED_LOADS = 16
_MOST = 32  # instructions of a step: more of them take drivers long to compile


@dataclass(frozen=True)
class CooperativePlan(GpuKernelPlan):
    """Cooperative matrices."""

    codes: Array  # [N, K]
    weights: CodeFormat
    depth: int
    matrix: MatrixInstruction
    machine: Spirv
    target: Target

    def made(self) -> CooperativeKernel:
        return CooperativeKernel(self.kernel, self.weights, self.depth, self.matrix, self.machine)

    def weight(self) -> ir.Value:
        return packed(self.codes, self.weights)

    @property
    def variant(self) -> Hashable:
        return self.depth

    @property
    def storage(self) -> Hashable:
        return self.weights

    def cost(self) -> Cost:
        """See `gpu_kernels.strategy.DotPlan`."""
        plan, f = self.made(), Figures(self.target.capabilities)
        assert self.kernel.m is not None
        blocks = -(-self.kernel.m // TILE) * -(-self.kernel.n // TILE)
        loads = 2 * TILE * self.depth // (plan.threads * 16) + _SHARED_LOADS
        busy = f.slots(plan.steps * (_MULTIPLY * self.depth / 16 + LOAD * loads))
        read = blocks * TILE * self.kernel.k * (1 / self.weights.fields + 1)
        times = rounds(f, blocks, plan.threads)
        return f.cost(Work(1, 1, {"multiply": times * busy, "cache": f.cache(read / f.units)}))

    def describe(self) -> Facts:
        return {
            "route": "kernel",
            "algorithm": "cooperative matrix",
            "mma": self.matrix.name,
            "weight_bits": self.weights.bits,
            "workgroup": [TILE, TILE, self.depth],
            "threads": self.made().threads,
            "shared_bytes": self.made().shared_bytes,
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
        return considered(self, contraction)

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """See `multi_version.SizedStrategy`."""
        types = (c.lhs, c.rhs, c.acc)
        if types not in (("i8", "i8", "i32"), ("f16", "f16", "f32")):
            return Decline(
                f"unsupported: a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "i8 codes on both sides, or f16 by codes"
            )
        if not self._matrices(*types):
            return Decline(f"{self.target.spelling} has no cooperative matrix of {c.lhs}", "none needed")
        return described(c, planes=True)

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """See `multi_version.SizedStrategy`."""
        return self.check(kernel)

    def each(self) -> Sequence[CooperativeKernelStrategy]:
        """See `multi_version.SizedStrategy`."""
        return [self]

    def _matrices(self, lhs: str, rhs: str, acc: str) -> list[MatrixInstruction]:
        """Those that the kernel is written for, the largest first."""
        kinds = [k for k in map(parse_mma, self.target.capabilities.mma) if (k.lhs, k.rhs, k.acc) == (lhs, rhs, acc)]
        fitting = [k for k in kinds if k.m in (8, 16, 32) and k.n in (8, 16, 32) and k.k in (8, 16, 32)]
        return sorted(fitting, key=lambda k: (k.m * k.n, k.k), reverse=True)

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
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
            return Decline(
                "the weight is not a constant", "make the weight a constant, or a parameter that is baked in"
            )
        least = 8 if decodes else 16  # codes whose bytes, or numbers, are one store to shared memory
        shared, available = 0, self.target.capabilities.shared_memory
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
                plan = CooperativePlan(kernel, codes, weights, depth, matrix, self.machine, self.target)
                shared = plan.made().shared_bytes
                if shared <= available:
                    return Accept(plan, with_cost(kernel_estimate(self.target, kernel, weights.bits), plan))
        if shared > available:
            return Decline(
                f"a workgroup's tiles take {shared} bytes of shared memory, and the device has {available}",
                "other routes take less",
            )
        return Decline(f"groups of {kernel.group} along K are not a multiple of 16", "a group size of 16 or a multiple")


def _instructions(matrix: MatrixInstruction, depth: int) -> int:
    """Of a subgroup's step of `depth` along K."""
    return WAVE // matrix.m * (WAVE // matrix.n) * (depth // matrix.k)
