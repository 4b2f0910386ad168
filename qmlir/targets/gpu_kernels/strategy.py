"""When a kernel by dot products takes a contraction. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ...core.mlir import OpLike, ir
from ...dialect.dtypes import Array
from ...kernels.description import Kernel
from ...kernels.order import arranged
from ...kernels.outline import Emit, Scratch, outline, widest
from ...kernels.weights import constant_codes
from ..base import FLOAT8, Target
from ..cost import Cost, Figures, Work
from ..gpu import parse_mma
from ..roofline import kernel_estimate
from ..strategy import Accept, Contraction, Decline, Estimate, Facts, Strategy
from .described import described, small_floats
from .dot import DotKernel, WorkSplit
from .executable import KernelFunction, Launch, executable
from .machine import Machine
from .multi_version import SizedPlan
from .route import with_routing
from .stream_k import Sharing, with_scratch
from .weights import COLUMNS, CodeFormat, packed, stored

if TYPE_CHECKING:
    from typing_extensions import Self

# More rows than a cooperative kernel keeps in one thread; from here on tiles are better.
MOST_ROWS = 8
# Scales of one byte, which epilogues read.
SMALL_FLOATS = (*FLOAT8, "f8E8M0FNU")
# Threads that share K of the same outputs, where rows are few.
_WORKERS = (8, 16, 32)
# Slots for instructions that one load takes of a thread.
LOAD = 8
_ROUTE_THREADS = 256  # that bring rows of experts into blocks


def rounds(f: Figures, workgroups: int, threads: int) -> int:
    """How often workgroups of so many threads fill all lanes of a device."""
    return -(-workgroups * threads // (f.units * f.lanes))


class Made(Protocol):
    """What emits a kernel."""

    @property
    def sharing(self) -> Sharing | None: ...

    @property
    def function(self) -> KernelFunction: ...


@dataclass(frozen=True)
class GpuKernelPlan:
    """A kernel in the place of the contraction and of what is fused with it; see `multi_version.SizedPlan`."""

    kernel: Kernel

    def made(self) -> Made:
        """What emits it."""
        raise NotImplementedError

    def weight(self) -> ir.Value:
        """The weight as the kernel reads it, at the insertion point."""
        raise NotImplementedError

    def apply(self, op: OpLike) -> None:
        self.outline(lambda name, inputs, result: executable(name, self.function(inputs, result)), ())

    @property
    def scratch(self) -> Scratch | None:
        """What the kernel needs beside its operands."""
        sharing = self.made().sharing
        return None if sharing is None else sharing.scratch(self.kernel)

    def outline(self, emit: Emit, beside: Sequence[SizedPlan]) -> None:
        scratch = widest([self.scratch, *(plan.scratch for plan in beside)])
        i32 = ir.IntegerType.get_signless(32)
        outline(self.kernel, self.weight, emit, size_type=i32, arrange=arranged, scratch=scratch)

    @property
    def most_rows(self) -> int | None:
        return None

    def of(self, kernel: Kernel) -> Self:
        return replace(self, kernel=kernel)

    def function(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        made = self.made()
        return with_scratch(made.function, self.kernel, inputs, made.sharing is not None)


@dataclass(frozen=True)
class DotPlan(GpuKernelPlan):
    """Dot products of bytes, or multiply-adds of decoded weights."""

    weights: CodeFormat
    codes: Array | None  # of a constant weight, [N, K]; None: read as the program has it
    shape: WorkSplit
    machine: Machine
    algorithm: str
    target: Target
    slow: str = ""  # why something better is to be expected of the device

    def made(self) -> DotKernel:
        return DotKernel(self.kernel, self.weights, self.codes is not None, self.shape, self.machine)

    def weight(self) -> ir.Value:
        return packed(self.codes, self.weights) if self.codes is not None else self.kernel.rhs.value

    @property
    def variant(self) -> Hashable:
        return self.shape

    @property
    def storage(self) -> Hashable:
        return self.weights

    @property
    def most_rows(self) -> int | None:
        """Threads that share K read the weight again for every few rows: tiles are made for more."""
        return 2 * self.shape.rows if self.shape.workers > 1 else None

    def cost(self) -> Cost:
        """What threads that run at the same time do for a piece of K each, or what reading it takes, or how long they
        wait for it: they read one piece at a time."""
        shape, form, f = self.shape, self.weights, Figures(self.target.capabilities)
        assert self.kernel.m is not None
        rows, columns = shape.tile
        pieces = -(-self.kernel.k // (form.depth * shape.workers))
        dots = shape.rows * COLUMNS * form.words * form.fields * (1 if self.kernel.rhs.decode is None else 4)
        shuffles = 2 * shape.rows * COLUMNS * (shape.workers.bit_length() - 1)
        blocks = -(-self.kernel.m // rows) * -(-self.kernel.n // columns)
        read = blocks * self.kernel.k * (columns / form.fields + rows)
        times = rounds(f, blocks, shape.threads)
        piece = {
            "multiply": times * f.slots(dots + LOAD * (COLUMNS + shape.rows)),
            "cache": f.cache(read / f.units / pieces),
            "latency": f.latency,
        }
        return f.cost(Work(1, pieces, piece, once=times * f.slots(shuffles)))

    def describe(self) -> Facts:
        return {
            "route": "kernel",
            "algorithm": self.algorithm,
            "weight_bits": self.weights.bits,
            "tile": list(self.shape.tile),
            "threads": self.shape.threads,
            "workers": self.shape.workers,
            "fused": len(self.kernel.operations) - 1,
            **({"slow": self.slow} if self.slow else {}),
        }


@dataclass(frozen=True)
class DotStrategy:
    """Integer products, and floats by constant weights of codes, without a matrix instruction.

    `few` is the cooperative form, of at most `MOST_ROWS` rows; otherwise tiles of outputs, of any number of rows.
    """

    target: Target
    machine: Machine
    few: bool
    most_float_rows: int = MOST_ROWS  # of products of floats, for which a target may have something better
    # Whether it takes weights that are arguments `[K, N]`, or of batches, which no other route of the target reads as
    # they lie.
    any_argument: bool = False

    @property
    def name(self) -> str:
        return "cooperative" if self.few else "tiled"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        return self._many(contraction) or considered(self, contraction)

    def _many(self, c: Contraction) -> Decline | None:
        """A Decline where rows are too many."""
        most = MOST_ROWS if c.acc == "i32" else self.most_float_rows
        if not self.few or (c.m is not None and c.m <= most) or isinstance(self._types(c), Decline):
            return None
        rows = "the number of rows is dynamic" if c.m is None else f"M = {c.m}"
        return Decline(f"{rows}: threads share K for at most {most} rows", "none needed: tiles fit")

    def _types(self, c: Contraction) -> Decline | None:
        floats = ("f32", "f16", "bf16") if self.machine.bf16_as_bits else ("f32", "f16")
        if (c.lhs, c.rhs, c.acc) == ("i8", "i8", "i32") or (c.acc == "f32" and (c.lhs in floats or small_floats(c))):
            return None
        names = " or ".join(reversed(floats))
        return Decline(
            f"unsupported element types {c.lhs} x {c.rhs} -> {c.acc}",
            f"codes of i8 or one-byte floats on both sides, or {names} by codes",
        )

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """See `multi_version.SizedStrategy`."""
        return self._types(c) or described(c)

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """See `multi_version.SizedStrategy`."""
        return self._many(c) or self.check(kernel)

    def each(self) -> Sequence[DotStrategy]:
        """See `multi_version.SizedStrategy`."""
        return [self]

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        if unfit := unreadable(kernel) or unsupported(kernel, self.machine):
            return unfit
        codes = byte_codes(constant_codes(kernel))
        weights = stored(codes, kernel, self._most_words(kernel)) if codes is not None else None
        if codes is None:
            batch, axes = kernel.batch, kernel.rhs.source_axes
            picked = batch is not None and (batch.beside or batch.index is not None or not self.any_argument)
            if kernel.rhs.decode is not None or kernel.rhs.e2m1 or kernel.lhs.window is not None or picked:
                return Decline("the weight is not a constant", "make the weight a constant, or a parameter")
            if axes not in (("n", "k"), ("b", "n", "k")) and not (
                self.any_argument and axes in (("k", "n"), ("b", "k", "n"))
            ):
                return Decline("the weight is an argument that is not [N, K]", "make it a constant, or transposed")
            weights = CodeFormat(8, 0, next(w for w in (4, 2, 1) if kernel.k % (4 * w) == 0 or w == 1))
        if weights is None:
            return Decline(
                f"groups of {kernel.group} along K are not a multiple of 4", "a group size of 4 or a multiple"
            )
        shape = self._shape(kernel, weights, codes)
        if weights.depth * 65535 * shape.workers < kernel.k:
            return Decline(f"K is {kernel.k}: too long for one loop", "a shorter K")
        slow, floats = "", str(kernel.acc_type) == "f32"
        if not self.few and floats and any(parse_mma(k).lhs == "f16" for k in self.target.capabilities.mma):
            slow = "IREE makes no f16 cooperative matrix that a device could run"
        plan = self._plan(kernel, weights, codes, shape, slow)
        return Accept(plan, with_cost(kernel_estimate(self.target, kernel, weights.bits, dot=True), plan))

    def _most_words(self, kernel: Kernel) -> int:
        """Of a piece: where it is decoded, its activations of all rows are in registers."""
        if kernel.rhs.decode is None:
            return 4
        rows = kernel.m if self.few and kernel.m is not None else 4
        return 4 if rows <= 1 else 2 if rows <= 2 else 1

    def _plan(
        self, kernel: Kernel, weights: CodeFormat, codes: Array | None, shape: WorkSplit, slow: str = ""
    ) -> DotPlan:
        return DotPlan(kernel, weights, codes, shape, self.machine, self.name, self.target, slow)

    def _shape(self, kernel: Kernel, weights: CodeFormat, codes: Array | None) -> WorkSplit:
        if not self.few:
            return WorkSplit(1, 8, 8, 4)
        assert kernel.m is not None
        splits = [WorkSplit(n, 64 // n, 1, kernel.m) for n in _WORKERS if n <= self.machine.subgroup]
        return min(splits, key=lambda split: self._plan(kernel, weights, codes, split).cost().rank)


def with_cost(bound: Estimate, plan: SizedPlan) -> Estimate:
    """A bound with the cost of a plan; without where its size is dynamic, for several plans are compared then."""
    return bound if plan.kernel.m is None else replace(bound, cost=plan.cost())


class Checked(Strategy, Protocol):
    """A strategy whose kernels may read tables that another kernel of ours makes."""

    @property
    def machine(self) -> Machine: ...

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """What the contraction and all that is fused with it compute."""

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether the kernel can be computed this way."""


def considered(strategy: Checked, c: Contraction) -> Accept | Decline:
    """Whether a strategy takes a contraction."""
    kernel = strategy.kernel_of(c)
    if isinstance(kernel, Decline):
        return kernel
    launch = Launch(_ROUTE_THREADS, strategy.machine.subgroup, lambda rows: (1, 1, 1))
    return with_routing(strategy.check(kernel), strategy, c, described, launch)


def byte_codes(codes: Array | None) -> Array | None:
    """Constant codes as signed bytes: those of one-byte floats are their bits."""
    import numpy as np

    return codes if codes is None or codes.dtype == np.int8 else codes.view(np.int8)


def unreadable(kernel: Kernel, piece: int = 4) -> Decline | None:
    """A Decline where activations do not lie as kernels read them, `piece` codes of a pixel at once."""
    if sum(size is None for size in kernel.row_sizes) > 1:
        return Decline("more than one axis of the rows is dynamic", "at most one dynamic axis")
    if kernel.lhs.source_axes[-1] != "k" or set(kernel.lhs.source_axes) - {"b", "m", "g", "k"}:
        return Decline("K is not the last axis of the activation", "an activation [M, K]")
    window = kernel.lhs.window
    if window is not None and window.channels % piece:
        return Decline(f"{window.channels} channels are not a multiple of {piece}", f"a multiple of {piece} channels")
    return None


def decoded_type(kernel: Kernel) -> str:
    """What a code of the weight becomes."""
    assert kernel.rhs.decode is not None
    return str(kernel.rhs.decode.body.arguments[len(kernel.rhs.decode.body.arguments) - 1].type)


def unsupported(kernel: Kernel, machine: Machine) -> Decline | None:
    """A Decline where a body reads or makes numbers that these kernels do not handle."""
    handled = ("i8", "i32", "f32", "f16", *SMALL_FLOATS, *(["bf16"] if machine.bf16_as_bits else []))
    kinds = [o.element_type for o in kernel.operands] + [kernel.result_type]
    for kind in kinds:
        if str(kind) not in handled:
            return Decline(f"it reads or makes {kind}", "f32, f16, i32 or i8 beside the product")
    return None


__all__ = ["DotPlan", "DotStrategy", "Strategy", "unsupported"]
