"""Decides when a kernel on cooperative matrices takes a contraction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ...gpu import MatrixInstruction, parse_mma
from ...gpu_kernels.plan import accepted, fastest
from ...gpu_kernels.strategy import NOT_ONE_PRODUCT, FixedTile, ProductStrategy, codes_for_matrices, with_tiles
from ...gpu_kernels.weights import stored
from ...roofline import kernel_estimate
from ...strategy import Accept, Contraction, Decline
from .machine import Spirv
from .matrix import TILE, WAVE, CooperativeKernel

_MAX_PER_STEP = 32  # instructions: drivers take long to compile more of them


@dataclass(frozen=True, kw_only=True)
class CooperativeKernelStrategy(ProductStrategy[FixedTile]):
    """Products by constant weights on devices with cooperative matrices: of codes on i8 matrices, and of f16 by decoded
    weights on f16 matrices with f32 sums."""

    machine: Spirv
    name: str = "matrix"
    tiles: tuple[FixedTile, ...] = (FixedTile(TILE, TILE), FixedTile(TILE, TILE, stream_k=True))
    planes = True

    def unlike(self, c: Contraction) -> Decline | None:
        types = (c.lhs, c.rhs, c.acc)
        if types not in (("i8", "i8", "i32"), ("f16", "f16", "f32")):
            return Decline(
                f"unsupported: a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "i8 codes on both sides, or f16 by codes"
            )
        if not self._matrices(*types):
            return Decline(f"{self.target.spelling} has no cooperative matrix of {c.lhs}", "none needed")
        return None

    def _matrices(self, lhs: str, rhs: str, acc: str) -> list[MatrixInstruction]:
        """The device's matrices that the kernel supports, the largest first."""
        kinds = [k for k in map(parse_mma, self.target.capabilities.mma) if (k.lhs, k.rhs, k.acc) == (lhs, rhs, acc)]
        fitting = [k for k in kinds if k.m in (8, 16, 32) and k.n in (8, 16, 32) and k.k in (8, 16, 32)]
        return sorted(fitting, key=lambda k: (k.m * k.n, k.k), reverse=True)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        codes = codes_for_matrices(kernel, 16 if kernel.rhs.decode is None else 8)
        if isinstance(codes, Decline):
            return codes
        made, available = list(self._candidates(kernel, codes)), self.target.capabilities.shared_memory
        fitting = [m for m in made if m.shared_bytes <= available]
        if fitting:
            plans = fastest(with_tiles(fitting[:1], self.tiles, self.target), codes, self.target)
            if not plans:
                return NOT_ONE_PRODUCT
            return accepted(plans, kernel_estimate(self.target, kernel, fitting[0].weights.bits))
        if made:
            return Decline(
                f"a workgroup's tiles take {made[-1].shared_bytes} bytes of shared memory, and the device has "
                f"{available}", "other routes take less",
            )  # fmt: skip
        return Decline(f"groups of {kernel.group} along K are not a multiple of 16", "a group size of 16 or a multiple")

    def _candidates(self, kernel: Kernel, codes: Array) -> Iterator[CooperativeKernel]:
        """Kernels whose steps divide the groups along K, the deepest first."""
        decodes = kernel.rhs.decode is not None
        matrices = self._matrices("f16", "f16", "f32") if decodes else self._matrices("i8", "i8", "i32")
        least = 8 if decodes else 16  # codes whose bytes, or f16 values, are one store to shared memory
        for depth in (32, 16) if decodes else (64, 32, 16):
            matrix = next((m for m in matrices if depth % m.k == 0 and _instructions(m, depth) <= _MAX_PER_STEP), None)
            if matrix is None or (kernel.group is not None and kernel.group % depth):
                continue
            for words in (2, 1) if decodes else (4, 2, 1):
                weights = stored(codes, kernel, words)
                if weights is None or depth % weights.depth or weights.depth % least:
                    continue
                if depth == 64 and weights.depth < 64:
                    continue
                yield CooperativeKernel(kernel, self.machine, weights, depth, matrix)


def _instructions(matrix: MatrixInstruction, depth: int) -> int:
    """The matrix instructions of a subgroup in a step of `depth` along K."""
    return WAVE // matrix.m * (WAVE // matrix.n) * (depth // matrix.k)
