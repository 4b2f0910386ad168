"""When a kernel on matrix instructions takes a contraction, and how it is tiled."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import hypot

from ....core.mlir import ir
from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ....kernels.weights import constant_codes
from ...base import Target
from ...cost import Cost, Figures, Work
from ...gpu_kernels.described import described, small_floats
from ...gpu_kernels.strategy import (
    SMALL_FLOATS,
    GpuKernelPlan,
    byte_codes,
    considered,
    decoded_type,
    unreadable,
)
from ...gpu_kernels.tile_choice import Tiled, best_first, seconds_of_sharing
from ...gpu_kernels.weights import CodeFormat, offset_of
from ...roofline import kernel_estimate
from ...strategy import Accept, Contraction, Decline, Facts, RunnerUp
from .instructions import INSTRUCTIONS, Instruction
from .machine import Amd
from .matrix import KStep, MatrixKernel, Tiles

_READABLE = ("i8", "i32", "f32", "f16", "bf16", *SMALL_FLOATS)
# A dynamic number of rows is taken as this many where tiles are compared.
_TYPICAL = 128
# And of a dynamic number of products.
_TYPICAL_PRODUCTS = 16


@dataclass(frozen=True)
class MatrixPlan(GpuKernelPlan):
    """Matrix instructions."""

    codes: Array  # [N, K]
    step: KStep
    tiles: Tiles
    machine: Amd
    target: Target
    because: str = ""  # K is shared by workgroups, or is not

    def made(self) -> MatrixKernel:
        made = MatrixKernel(self.kernel, self.step, self.tiles, self.machine)
        return replace(made, workgroups=_sharing(made, self.target)) if self.tiles.stream_k else made

    def weight(self) -> ir.Value:
        packed: ir.Value = self.made().packed(self.codes)
        return packed

    @property
    def variant(self) -> Hashable:
        return self.tiles

    @property
    def storage(self) -> Hashable:
        return self.step

    def cost(self) -> Cost:
        return _cost(self.made(), self.target)

    def describe(self) -> Facts:
        plan = self.made()
        return {
            "route": "kernel",
            "algorithm": "matrix",
            "mma": self.step.instruction.name,
            "weight_bits": self.step.codes.bits,
            "workgroup": [*plan.tile, self.step.depth],
            "threads": plan.threads,
            "shared_bytes": plan.shared_bytes,
            **({"stream_k": plan.workgroups} if plan.workgroups else {}),
            **({"because": self.because} if self.because else {}),
            "fused": len(self.kernel.operations) - 1,
        }


# The most work of a wave first.
_TILES = tuple(
    Tiles(rows, columns, waves, stream_k)
    for stream_k in (False, True)
    for rows, columns, waves in itertools.product((4, 2, 1), repeat=3)
)


@dataclass(frozen=True, kw_only=True)
class MatrixStrategy(Tiled[Tiles]):
    """Products by constant weights of codes: of integers, and of f16 or bf16 by weights that are decoded in registers.

    What IREE's own tiles do in one dispatch is left to them, unless `always`, or where workgroups better share K.
    """

    machine: Amd
    accumulators: int  # registers of a lane for sums, those over groups included
    always: bool = False
    name: str = "matrix"
    tiles: tuple[Tiles, ...] = _TILES

    def consider(self, contraction: Contraction) -> Accept | Decline:
        return considered(self, contraction)

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """See `multi_version.SizedStrategy`."""
        floats = c.acc == "f32" and (c.lhs in ("f16", "bf16") or small_floats(c))
        if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32") and not floats:
            return Decline(
                f"{c.lhs} x {c.rhs} -> {c.acc}", "codes of i8 or one-byte floats on both sides, or f16 or bf16 by codes"
            )
        return described(c, planes=True)

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """See `multi_version.SizedStrategy`."""
        return self.on_request(kernel) or self.check(kernel)

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        if unfit := unreadable(kernel, 16):
            return unfit
        for kind in [o.element_type for o in kernel.operands] + [kernel.result_type]:
            if str(kind) not in _READABLE:
                return Decline(f"it reads or makes {kind}", f"one of {', '.join(_READABLE)} beside the product")
        if kernel.rhs.decode is not None and decoded_type(kernel) != str(kernel.lhs.value.type.element_type):
            return Decline("the weight is decoded to another type than the activation's", "the activation's type")
        codes = byte_codes(constant_codes(kernel))
        if codes is None:
            return Decline(
                "the weight is not a constant", "make the weight a constant, or a parameter that is baked in"
            )
        step = next(steps(kernel, codes, self.machine), None)
        if step is None:
            return Decline(
                f"groups of {kernel.group} along K are not a multiple of an instruction's K",
                "a group size of 32 or more",
            )
        plans = self._plans(MatrixPlan(kernel, codes, step, _TILES[0], self.machine, self.target))
        if not plans:
            return Decline("such tiles do not fit the registers", "smaller ones")
        plan = plans[0]
        if not self.always and len(self.tiles) > 1 and not plan.tiles.stream_k and _plain(kernel):
            return Decline("IREE's own tiles take it with all that is fused, in one dispatch", "none needed")
        bound = replace(kernel_estimate(self.target, kernel, step.codes.bits), cost=plan.cost())
        if len(plans) > 1:
            runner_up = RunnerUp(f"tile {plans[1].tiles.name}", plans[1].cost())
            bound = replace(bound, runner_up=runner_up)
        return Accept(plan, bound)

    def _plans(self, plan: MatrixPlan) -> list[MatrixPlan]:
        """The plan with each of the tiles that fit, the fastest first; those whose workgroups share K are first where
        that pays."""
        kernel, step = plan.kernel, plan.step
        m = kernel.m if kernel.m is not None else _TYPICAL
        sums = 2 if kernel.combine is not None else 1
        # Where accumulators come out of the same file as everything else, what makes halves of bytes takes as many.
        most = self.accumulators // (1 if step.converted is None or self.machine.cdna else 2)
        found: dict[bool, list[tuple[float, MatrixPlan]]] = {False: [], True: []}
        for tiles in self.tiles:
            registers = tiles.rows * tiles.columns * step.instruction.registers * sums
            wasteful = (tiles.rows > 1 and 8 * tiles.rows >= m) or 8 * tiles.columns * tiles.waves >= kernel.n + 16
            smallest = (tiles.rows, tiles.columns, tiles.waves) == (1, 1, 1)
            if registers > most or (wasteful and not smallest) or (tiles.stream_k and kernel.batch is not None):
                continue
            each = replace(plan, tiles=tiles)
            found[tiles.stream_k].append((each.cost().rank, each))
        apart, shared = (sorted(found[kind], key=lambda pair: pair[0]) for kind in (False, True))
        plans, because = best_first(apart, shared, kernel)
        return [replace(made, because=because) for made in plans]


_SIMDS = 4  # of a compute unit
_WAVES = 8  # of a SIMD, at most
_REGISTERS, _OTHER_REGISTERS = 512, 64  # of a lane of a SIMD, and of a wave beside its sums


def _resident(made: MatrixKernel, target: Target) -> int:
    """Waves that a SIMD runs at the same time."""
    tiles, sums = made.tiles, 2 if made.kernel.combine is not None else 1
    registers = tiles.rows * tiles.columns * made.step.instruction.registers * sums + _OTHER_REGISTERS
    workgroups = target.capabilities.shared_memory // made.shared_bytes
    return max(1, min(_WAVES, _REGISTERS // registers, workgroups * tiles.waves // _SIMDS))


def _sharing(made: MatrixKernel, target: Target) -> int:
    """Workgroups that share K: as many as run at the same time, two waves on a SIMD where they fit."""
    waves = _SIMDS * Figures(target.capabilities).units * min(2, _resident(made, target))
    return waves // made.tiles.waves


def _cost(made: MatrixKernel, target: Target) -> Cost:
    """Rounds over the SIMDs of a device, times what the waves of one do in a step along K. What a wave does beside its
    instructions takes it about as long as some of them: its weights, its share of the activations, the rest. A step is
    under way while the one before is multiplied: what is left of the latency of memory is waited for."""
    f, kernel, step, tiles = Figures(target.capabilities), made.kernel, made.step, made.tiles
    m = f.rows(kernel.m, _TYPICAL)
    products = 1 if kernel.batch is None else kernel.batch.size or _TYPICAL_PRODUCTS
    rows, columns, waves = tiles.rows, tiles.columns, tiles.waves
    blocks = products * -(-m // (16 * rows)) * -(-kernel.n // (16 * columns * waves))
    each = -(-blocks * waves // (_SIMDS * f.units))
    together: float = min(each, _resident(made, target))
    rounds, steps, once = each / together, made.steps, 0.0
    if (sharing := made.sharing) is not None:
        together = sharing.workgroups * waves / (_SIMDS * f.units)
        rounds, steps = 1, -(-blocks * made.steps // sharing.workgroups)
        once = seconds_of_sharing(sharing, together * _SIMDS / waves, f)
    tile = _SIMDS * f.multiply(2 * 16 * 16 * step.depth, step.instruction.element)
    addresses = 2.0 if sharing is None else 3.0  # a share starts and ends anywhere
    beside = {"weights": columns, "activations": rows / 2 + rows / waves, "addresses": addresses}
    busy = {name: together * tile * share for name, share in {"multiply": rows * columns, **beside}.items()}
    total = sum(busy.values())
    return f.cost(Work(rounds, steps, alone={**busy, "latency": hypot(total, f.latency) - total}, once=once))


def _plain(kernel: Kernel) -> bool:
    """Whether the stock route takes the kernel in one dispatch, none of it slow."""
    if kernel.batch is not None and kernel.batch.index is not None:
        return False
    if kernel.rhs.decode is not None:
        # Steps of K that are not full are padded, in scratch.
        return kernel.group is None and kernel.lhs.window is None and kernel.k % 32 == 0
    if kernel.lhs.window is not None:
        # Padding is a dispatch of its own, and so is bringing channels to the front or from there.
        window = kernel.lhs.window
        moved = window.margin != (0, 0) or window.planes or kernel.planes or window.groups > 1
        return kernel.m is not None and not moved
    return kernel.combine is None and not uses_row_sums(kernel) and not kernel.lhs.flipped


def steps(kernel: Kernel, codes: Array, machine: Amd) -> Iterator[KStep]:
    """Ways to step along K whose steps divide the groups, best first."""
    element, converted = _multiplied(kernel, machine)
    kinds = [i for i in INSTRUCTIONS[machine.arch] if i.element == element]
    wanted = 64 if machine.cdna or kernel.rhs.decode is None else 32
    # What a step of a convolution works out of its window is as much for twice the codes; where these are there.
    window = kernel.lhs.window is not None and -(-kernel.k // wanted) % 2 == 0
    for bits in (2, 4, 8):
        deep = 2 * wanted if (bits < 8 or window) and machine.cdna and element == "i8" else wanted
        for depth in (deep, deep // 2, deep // 4, deep // 8):
            for kind in kinds:
                for run in (16, 8, 4):
                    if step := _step(kernel, codes, kind, bits, depth, run, converted):
                        yield step


def _multiplied(kernel: Kernel, machine: Amd) -> tuple[str, tuple[str, str] | None]:
    """What an instruction multiplies, and of which formats it is made, if of others: one-byte floats where there is no
    instruction for them become f16, or bf16 where f16 would have subnormal numbers."""
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
    """The step, None where it does not exist."""
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
