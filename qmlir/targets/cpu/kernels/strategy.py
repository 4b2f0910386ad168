"""Decides when a built-in kernel takes a product. All refusals are here; an accepted product can be emitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from ....dialect.dtypes import DTYPES
from ....kernels.bodies import unclonable
from ....kernels.codes import Codes, codes_of
from ....kernels.description import Factor, Kernel, Unfit
from ....kernels.group import describe
from ....kernels.outline import outline
from ....kernels.scaled import scaled
from ...base import Target
from ...capabilities import Capabilities
from ...strategy import (
    Accept,
    Choice,
    Contraction,
    Decline,
    Estimate,
    Facts,
    Knob,
    RunnerUp,
    seconds_text,
)  # fmt: skip
from ..description import lacks
from ..threads.program import team_of, threads_of
from .chunk import Chunk
from .float_micro import FloatMicro, Half
from .forecast import cost_of
from .gemm import ChunkSizes, Gemm, fits_stack
from .integer import IntegerChunk
from .lines import in_lines
from .micro import IntegerMicro, Micro, Weights
from .pack import consecutive, constant_zeros, decoded_weights, packed, scaled_weights, weights_for
from .plain import PLAIN, PlainChunk, PlainFma
from .product import Product
from .weight_only import DecodingChunk, ScaledChunk

if TYPE_CHECKING:
    from ....core.mlir import OpLike

# With fewer rows, packing a weight in every call costs more than the product.
_ROWS_FOR_PACKING = 16
# Fields of `gemm.ChunkSizes`; the first value is its default.
_KNOBS = (
    Knob("chunk_rows", (96, 24, 48, 192)),
    Knob("chunk_panels", (8, 2, 4, 16)),
    Knob("lhs_bytes", (48 << 10, 16 << 10, 24 << 10, 32 << 10)),
)

# The rows of a chunk that are read in place stay in the second-level cache.
_CACHED_ROWS = Knob("chunk_rows", (256, 64, 128, 512))


@dataclass(frozen=True)
class CpuKernelPlan:
    """Replaces the contraction and the ops fused with it by a dispatch of the kernel."""

    kernel: Kernel
    micro: Micro
    weights: Weights
    codes: Codes
    chosen: Mapping[str, int] = field(default_factory=dict)  # fields of `gemm.ChunkSizes`

    @cached_property
    def _gemm(self) -> Gemm:
        """The sizes of the chunks. First used before any op is replaced, because they depend on the activations'
        producers."""
        return Gemm(self.kernel, self.micro, self.weights, ChunkSizes(**self.chosen))

    def estimate(self, has: Capabilities) -> Estimate:
        """The cost model's estimate for these chunk sizes."""
        return Estimate(None, cost=cost_of(self._gemm, has))

    def apply(self, op: OpLike) -> None:
        gemm, kernel = self._gemm, self.kernel
        last = kernel.operations[-1]
        if gemm.copies:
            kernel = replace(kernel, lhs=Factor(in_lines(kernel, self.micro.lanes, gemm.line_stride), ("m", "k")))
        product = Product(gemm, self._chunk)
        outline(kernel, lambda: packed(gemm, self.codes), product.emit, lambda: [team_of(last, self.micro.features)])

    @property
    def _chunk(self) -> type[Chunk]:
        if isinstance(self.micro, PLAIN):
            return PlainChunk
        floats = DecodingChunk if self.weights.values is None else ScaledChunk
        return IntegerChunk if self.kernel.rhs.decode is None else floats

    def describe(self) -> Facts:
        gemm = self._gemm
        return {
            "route": "kernel",
            "micro": self.micro.name,
            "weight_bits": self.weights.bits,
            "tiles": [[size.rows, self.micro.panel, size.block_k] for size in gemm.sizes],
            "chunk": [gemm.chunk_rows, gemm.chunk_panels * self.micro.panel],
            "fused": len(self.kernel.operations) - 1,
            **threads_of(self.micro.features),
        }


_Product = TypeVar("_Product", bound="CpuProductStrategy")


@dataclass(frozen=True)
class CpuProductStrategy(ABC):
    """Products by one micro-kernel: the base of the strategies for products of integers and of floats."""

    target: Target
    micro: Micro
    chosen: Mapping[str, int] = field(default_factory=dict)  # fields of `gemm.ChunkSizes`
    rival: CpuProductStrategy | None = None  # takes the products at which it is faster, unless this one is requested
    plain: ClassVar[bool] = False  # whether weights are floats, multiplied without decoding

    @property
    def name(self) -> str:
        return self.micro.name

    def requested(self: _Product) -> _Product:
        """See `strategy.OnRequest`."""
        return replace(self, rival=None)

    def space(self) -> tuple[Knob, ...]:
        """See `strategy.Tunable`."""
        return (_CACHED_ROWS, *_KNOBS[1:]) if self.micro.reads_rows else _KNOBS

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        """See `strategy.Tunable`."""
        return ()

    def choosing(self: _Product, choice: Choice) -> _Product:
        """See `strategy.Tunable`."""
        return replace(self, chosen={k.name: int(choice[k.name]) for k in self.space() if k.name in choice})

    def consider(self, contraction: Contraction) -> Accept | Decline:
        declined = self.lacks() or self.unlike(contraction)
        if declined is not None:
            return declined
        if contraction.op is None:
            return Decline("the ops that are fused with it are not known", "none needed")
        return self.of_group(contraction.op)

    def of_group(self, op: OpLike) -> Accept | Decline:
        """Whether this micro-kernel computes the contraction `op` and the ops fused with it."""
        try:
            kernel = describe(op, extended=True, plain=self.plain)
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return self.check(kernel)

    def lacks(self) -> Decline | None:
        """A refusal if the target lacks the instructions."""
        return lacks(self.target, *self.micro.features)

    @abstractmethod
    def unlike(self, contraction: Contraction) -> Decline | None:
        """A refusal if the contraction's kind or types are not those of this strategy."""

    def too_few(self, n: int) -> Decline | None:
        """A refusal if `n` columns leave most of a tile unused."""
        if 4 * n < self.micro.lanes:
            return Decline(
                f"N is {n}: fewer columns than a quarter of a vector's {self.micro.lanes} lanes",
                "the stock route sums along K across lanes",
            )
        return None

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether this micro-kernel computes `kernel`."""
        codes = codes_of(kernel)
        if codes.is_argument:
            kernel = kernel.without_gate()  # packing in every call does not interleave the halves for a gate
        declined = self.too_few(kernel.n) or self.unfit(kernel, codes)
        if declined is not None:
            return declined
        weights = self.weights(kernel, codes)
        if isinstance(weights, Decline):
            return weights
        depth = self.micro.depth(weights)
        if kernel.group is not None and kernel.group % depth:
            return Decline(
                f"groups of {kernel.group} along K are not a multiple of {depth}, the codes of one step",
                f"a group size of {depth} or a multiple",
            )
        if not fits_stack(kernel, depth, self.micro.lhs_bytes):
            return Decline(f"groups of {kernel.group} along K exceed a thread's stack", "shorter groups")
        plan = CpuKernelPlan(kernel, self.micro, weights, codes, self.chosen)
        return self._unrivalled(kernel, Accept(plan, plan.estimate(self.target.capabilities)))

    def _unrivalled(self, kernel: Kernel, answer: Accept) -> Accept | Decline:
        """The answer, or a refusal if the rival is estimated to be faster."""
        other = None if self.rival is None else self.rival.check(kernel)
        ours = answer.estimate.cost
        if self.rival is None or not isinstance(other, Accept) or ours is None or other.estimate.cost is None:
            return answer
        theirs = other.estimate.cost
        if ours.rank <= theirs.rank:
            return replace(answer, estimate=replace(answer.estimate, runner_up=RunnerUp(self.rival.name, theirs)))
        return Decline(
            f"estimated {seconds_text(ours.seconds)}, {self.rival.name} {seconds_text(theirs.seconds)}",
            f"choice={{'strategy': '{self.name}'}} asks for it",
            on_request=True,
        )

    @abstractmethod
    def unfit(self, kernel: Kernel, codes: Codes) -> Decline | None:
        """A refusal of the operands' layouts, or of the kind of weight."""

    @abstractmethod
    def weights(self, kernel: Kernel, codes: Codes) -> Weights | Decline:
        """How the weights are stored."""


@dataclass(frozen=True)
class KernelStrategy(CpuProductStrategy):
    """Integer products by one micro-kernel."""

    micro: IntegerMicro

    def unlike(self, contraction: Contraction) -> Decline | None:
        c = contraction
        if c.kind != "matmul":
            return Decline(f"a {c.kind}", "write it as a matmul")
        if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32"):
            return Decline(
                f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies i8 by i8", "integer codes on both sides"
            )
        return None

    def unfit(self, kernel: Kernel, codes: Codes) -> Decline | None:
        if codes.is_argument and kernel.batch is not None:
            return Decline("the weights of a batch are an argument", "make the weight a constant or a parameter")
        if codes.is_argument and (kernel.m is None or kernel.m < _ROWS_FOR_PACKING):
            rows = "a dynamic number of rows" if kernel.m is None else f"M = {kernel.m}"
            return Decline(
                f"the weight is an argument: packing it in every call does not pay for {rows}",
                "make the weight a constant or a parameter",
            )
        if codes.is_argument and kernel.rhs.source_axes not in (("n", "k"), ("k", "n")):
            return Decline("the weight is an argument and has groups", "make the weight a constant or a parameter")
        if kernel.lhs.source_axes[-1] != "k" or set(kernel.lhs.source_axes) - {"b", "m", "g", "k"}:
            return Decline("K is not the last axis of the activation", "an activation [M, K]")
        return None

    def weights(self, kernel: Kernel, codes: Codes) -> Weights:
        return weights_for(codes, kernel, self.micro)


@dataclass(frozen=True)
class CpuWeightOnlyStrategy(CpuProductStrategy):
    """Products of floats by a constant weight of codes, which are decoded in registers."""

    def unlike(self, contraction: Contraction) -> Decline | None:
        c = contraction
        if c.kind != "matmul" or c.acc != "f32" or c.lhs not in ("f32", "f16", "bf16"):
            return Decline(f"unsupported: a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "a matmul of floats by codes")
        return None

    def unfit(self, kernel: Kernel, codes: Codes) -> Decline | None:
        if codes.is_argument:
            return Decline("the weight is an argument", "make the weight a constant or a parameter")
        return None

    def weights(self, kernel: Kernel, codes: Codes) -> Weights | Decline:
        assert kernel.rhs.decode is not None
        form = scaled(kernel.rhs.decode)
        if form is not None:
            weights = scaled_weights(codes, form, self.micro)
            if weights is not None:
                return weights
        if reason := unclonable(kernel.rhs.decode.body):
            return Decline(
                f"the op that dequantises the weight cannot be vectorised: {reason}", "codes of 4 bits or less"
            )
        return decoded_weights(codes, self.micro)


@dataclass(frozen=True)
class HalfStrategy(CpuWeightOnlyStrategy):
    """Products of 16-bit floats by a constant weight of short codes. The unscaled values of the codes are multiplied,
    so that products are exact; the scale is applied to the sum."""

    micro: Half

    def weights(self, kernel: Kernel, codes: Codes) -> Weights | Decline:
        assert kernel.rhs.decode is not None
        element = self.micro.element
        if str(kernel.lhs.value.type.element_type) != element:
            return Decline(f"activations of {kernel.lhs.value.type.element_type}", f"activations of {element}")
        form = scaled(kernel.rhs.decode)
        if form is None:
            return Decline("the weight is not a table entry times a scale", 'compute_dtype="f32", no float zero point')
        weights = scaled_weights(codes, form, self.micro)
        if weights is None:
            return Decline("codes of 8 bits", "the f32 kernel reads them as fast")
        values = np.array(weights.values)
        if not np.array_equal(values.astype(DTYPES[element].numpy).astype(np.float64), values):
            return Decline(f"the values of the codes are not exact in {element}", "the f32 kernel")
        if form.zero is None:
            return weights
        zeros = constant_zeros(kernel.rhs.decode, form)
        if zeros is None or not consecutive(tuple(weights.values or ())):
            return Decline(
                "the zero points are not constant, or the values of the codes are not consecutive integers",
                "the f32 kernel",
            )
        low, high = (int(zeros.min()), int(zeros.max())) if zeros.size else (0, 0)
        if high - low + len(values) > 32:
            return Decline(f"zero points from {low} to {high}", "a range of at most 16")
        return replace(weights, largest_zero=high)


@dataclass(frozen=True)
class PlainStrategy(CpuProductStrategy):
    """Products of floats by a constant weight of floats."""

    micro: FloatMicro
    plain: ClassVar[bool] = True

    def unlike(self, contraction: Contraction) -> Decline | None:
        c, element = contraction, "bf16" if isinstance(self.micro, Half) else "f32"
        if (c.kind, c.lhs, c.rhs, c.acc) != ("matmul", element, element, "f32"):
            return Decline(f"a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", f"a matmul of {element}")
        return None

    def unfit(self, kernel: Kernel, codes: Codes) -> Decline | None:
        if codes.is_argument:  # a shorter weight, widened, would take several times its memory
            return Decline("the weight is an argument or computed", "make the weight a constant or a parameter")
        if kernel.lhs.source_axes[-1] != "k":
            return Decline("K is not the last axis of the activation", "an activation [M, K]")
        return None

    def weights(self, kernel: Kernel, codes: Codes) -> Weights:
        return Weights(self.micro.bits[0], 0)

    def check(self, kernel: Kernel) -> Accept | Decline:
        if not isinstance(self.micro, PlainFma) or kernel.gate is not None:
            return super().check(kernel)
        return CpuProductStrategy.check(replace(self, micro=self.micro.of(kernel.n)), kernel)
