"""When a kernel on matrix instructions takes a contraction, and how it is tiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ...gpu_kernels.plan import accepted, fastest
from ...gpu_kernels.strategy import ProductStrategy, codes_for_matrices, small_floats
from ...gpu_kernels.tiled import TYPICAL_ROWS
from ...gpu_kernels.weights import CodeFormat, offset_of
from ...roofline import kernel_estimate
from ...strategy import Accept, Contraction, Decline
from .instructions import INSTRUCTIONS, Instruction
from .machine import Amd
from .matrix import KStep, MatrixKernel, Tiles

# Tiles with the most work per wave first.
_TILES = tuple(
    Tiles(rows, columns, waves, stream_k)
    for stream_k in (False, True)
    for rows, columns, waves in itertools.product((4, 2, 1), repeat=3)
)


@dataclass(frozen=True, kw_only=True)
class MatrixStrategy(ProductStrategy[Tiles]):
    """Products by constant weights of codes: of integers, and of f16 or bf16 by weights that are decoded in registers.

    Products that IREE's own tiles compute in one dispatch are left to IREE, unless `always`, or if it is faster that
    workgroups share K.
    """

    machine: Amd
    always: bool = False
    name: str = "matrix"
    tiles: tuple[Tiles, ...] = _TILES

    planes = True

    def unlike(self, c: Contraction) -> Decline | None:
        floats = c.acc == "f32" and (c.lhs in ("f16", "bf16") or small_floats(c))
        if (c.lhs, c.rhs, c.acc) == ("i8", "i8", "i32") or floats:
            return None
        return Decline(
            f"{c.lhs} x {c.rhs} -> {c.acc}", "codes of i8 or one-byte floats on both sides, or f16 or bf16 by codes"
        )

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        codes = codes_for_matrices(kernel, 16)
        if isinstance(codes, Decline):
            return codes
        step = next(steps(kernel, codes, self.machine), None)
        if step is None:
            return Decline(
                f"groups of {kernel.group} along K are not a multiple of an instruction's K",
                "a group size of 32 or more",
            )
        plans = fastest(self.made(kernel, step), codes, self.target)
        if not plans:
            return Decline("none of the tiles fits the registers", "smaller ones")
        if not self.always and len(self.tiles) > 1 and plans[0].made.sharing is None and _plain(kernel):
            return Decline("IREE compiles it with everything fused into one dispatch", "none needed")
        return accepted(plans, kernel_estimate(self.target, kernel, step.codes.bits))

    def made(self, kernel: Kernel, step: KStep, make: type[MatrixKernel] = MatrixKernel) -> Iterator[MatrixKernel]:
        """The kernel with each of the tiles that fit."""
        m, has = kernel.m if kernel.m is not None else TYPICAL_ROWS, self.target.capabilities
        # If accumulators share one register file with everything else, converting one-byte floats takes half of theirs.
        halves = 1 if step.converted is None or self.machine.cdna else 2
        for tiles in self.tiles:
            made = make(kernel, self.machine, step, tiles)
            wasteful = (tiles.rows > 1 and 8 * tiles.rows >= m) or 8 * tiles.columns * tiles.waves >= kernel.n + 16
            smallest = (tiles.rows, tiles.columns, tiles.waves) == (1, 1, 1)
            most = (has.shared_sum_registers if tiles.stream_k else has.sum_registers) // halves
            if made.registers > most or (wasteful and not smallest) or (tiles.stream_k and kernel.batch is not None):
                continue
            yield made.shared_among(self.target) if tiles.stream_k else made


def _plain(kernel: Kernel) -> bool:
    """Whether the stock route computes the kernel in one dispatch, without a slow part."""
    if kernel.batch is not None and kernel.batch.index is not None:
        return False
    if kernel.rhs.decode is not None:
        # IREE pads an incomplete step of K, in scratch.
        return kernel.group is None and kernel.lhs.window is None and kernel.k % 32 == 0
    if kernel.lhs.window is not None:
        # Padding is a separate dispatch, and so is moving channels to the front or from there.
        window = kernel.lhs.window
        moved = window.margin != (0, 0) or window.planes or kernel.planes or window.groups > 1
        return kernel.m is not None and not moved
    return kernel.combine is None and not uses_row_sums(kernel) and not kernel.lhs.flipped


def steps(kernel: Kernel, codes: Array, machine: Amd) -> Iterator[KStep]:
    """Yield the steps along K that divide the groups, best first."""
    element, converted = _multiplied(kernel, machine)
    kinds = [i for i in INSTRUCTIONS[machine.arch] if i.element == element]
    wanted = 64 if machine.cdna or kernel.rhs.decode is None else 32
    # A step of a convolution computes as much from its window for twice the codes, so it takes them if K has them.
    window = kernel.lhs.window is not None and -(-kernel.k // wanted) % 2 == 0
    for bits in (2, 4, 8):
        deep = 2 * wanted if (bits < 8 or window) and machine.cdna and element == "i8" else wanted
        for depth in (deep, deep // 2, deep // 4, deep // 8):
            for kind in kinds:
                for run in (16, 8, 4):
                    if step := _step(kernel, codes, kind, bits, depth, run, converted):
                        yield step


def _multiplied(kernel: Kernel, machine: Amd) -> tuple[str, tuple[str, str] | None]:
    """The type that the instruction multiplies, and the formats that are converted to it, if any. One-byte floats
    without an instruction of their own become f16, or bf16 if they could be subnormal in f16."""
    if kernel.rhs.decode is not None:
        return str(kernel.lhs.value.type.element_type), None
    left, right = (str(side.value.type.element_type) for side in (kernel.lhs, kernel.rhs))
    if left == right and any(i.element == left for i in INSTRUCTIONS[machine.arch]):
        return left, None
    halves = all(kind.startswith("f8E4M3") for kind in (left, right))
    return "f16" if halves else "bf16", (left, right)


def _step(
    kernel: Kernel, codes: Array, kind: Instruction, bits: int, depth: int, run: int,
    converted: tuple[str, str] | None,
) -> KStep | None:  # fmt: skip
    """The step with these parameters, None if it does not exist."""
    offset = offset_of(codes, kernel, bits)
    width = 1 if converted is not None else kind.bytes
    block = run * kind.parts
    fitting = run % kind.lanes == 0 and run % (4 * (8 // bits)) == 0 and depth % block == 0
    if offset is None or not fitting or depth * width % 16 or run * width > max(16, kind.lanes * kind.bytes):
        return None
    if kernel.group is not None and kernel.group % depth:
        return None
    blocks = depth // block
    together = next(n for n in (4, 2, 1) if blocks % n == 0 and (n * run * bits <= 128 or n == 1))
    words = together * run * bits // 32
    if words not in (1, 2, 4):
        return None
    return KStep(kind, run, blocks // together, together, CodeFormat(bits, offset, words, kernel.rhs.e2m1), converted)
