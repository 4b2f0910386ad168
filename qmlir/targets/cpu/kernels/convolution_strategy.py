"""Decides when a product kernel takes a convolution, reading the image itself or its patches in memory (im2col)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....core.mlir import ir
from ....dialect.constants import is_zero_fill
from ....kernels.at_load import of_parameters
from ....kernels.codes import numbers_known
from ....kernels.convolution import describe_convolution, side_by_side
from ....kernels.description import Kernel, Unfit
from ....kernels.weights import known
from ...im2col import as_matmul, convolution_as_matmul
from ...strategy import Accept, Choice, Contraction, Decline, Estimate, Facts, Knob, confirmed
from .strategy import CpuProductStrategy

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_LONGEST_ROW = 6 << 10


_MOST_VECTORS = 96


@dataclass(frozen=True)
class ConvolutionPlan:
    """Writes the patches of the image to memory, and multiplies them by a kernel that fuses the ops on its result."""

    strategy: CpuProductStrategy
    contraction: Contraction

    def apply(self, op: OpLike) -> None:
        with ir.InsertionPoint(op):
            result, matmul = convolution_as_matmul(op, False)
        op.results[0].replace_all_uses_with(result)
        op.erase()
        answer = self.strategy.requested().of_group(matmul)
        confirmed(answer, f"{self.strategy.name}-conv", self.contraction).plan.apply(matmul)

    def describe(self) -> Facts:
        return {"route": "im2col", "matmul": {"route": "kernel", "micro": self.strategy.micro.name}}


@dataclass(frozen=True)
class CpuConvolutionStrategy:
    """Convolutions over all channels, as products of the image's patches and the filter."""

    matmul: CpuProductStrategy

    @property
    def name(self) -> str:
        return f"{self.matmul.name}-conv"

    def requested(self) -> CpuConvolutionStrategy:
        """See `strategy.OnRequest`."""
        return CpuConvolutionStrategy(self.matmul.requested())

    def space(self) -> tuple[Knob, ...]:
        """See `strategy.Tunable`."""
        return self.matmul.space()

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        """See `strategy.Tunable`."""
        return ()

    def choosing(self, choice: Choice) -> CpuConvolutionStrategy:
        """See `strategy.Tunable`."""
        return CpuConvolutionStrategy(self.matmul.choosing(choice))

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        declined = self.matmul.lacks()
        if declined is not None:
            return declined
        if c.kind != "conv2d" or (c.batch and not self.matmul.plain) or c.op is None:
            grouped = " in groups of channels" if c.batch else ""
            return Decline(f"a {c.kind}{grouped}, not a convolution over all channels", "none needed")
        return self.check(c)

    def check(self, c: Contraction) -> Accept | Decline:
        """Decide whether a kernel takes the product of the patches."""
        declined = self.matmul.unlike(as_matmul(c))
        if declined is not None:
            return declined
        op = c.operation
        result = op.results[0].type
        if c.k is None or c.n is None or any(result.is_dynamic_dim(d) for d in (1, 2, 3)):
            return Decline("a size other than the batch is dynamic", "static sizes of image and filter")
        filter_ = op.operands[1]
        form = "linalg.conv_2d_nhwgc_gfhwc" if c.batch else "linalg.conv_2d_nhwc_fhwc"
        if op.name != form or not self._fixed(filter_):
            return Decline("the filter is not a constant [F, H, W, C]", "make the filter a constant or a parameter")
        if not is_zero_fill(op.operands[2]):
            return Decline("its initial value is not zero", "initialise it with zero and add the tensor to the result")
        few = self.matmul.too_few(c.n)
        if few is not None:
            return few
        plain = self.matmul.plain
        try:
            # Codes: only AVX-512 has masked loads of bytes, which windows that overhang the image need.
            padded = plain or self.matmul.micro.lanes == 16
            kernel = side_by_side(describe_convolution(op, padded=padded, grouped=plain, plain=plain))
        except Unfit as unfit:
            if c.batch:
                return Decline(unfit.reason, unfit.remedy)
            return Accept(ConvolutionPlan(self.matmul, c), Estimate(None))
        if self._overlapping_pays(kernel):
            return self.matmul.check(kernel)
        if c.batch:
            return Decline(f"a grouped convolution of {c.lhs}", "f32")
        return Accept(ConvolutionPlan(self.matmul, c), Estimate(None))

    def _fixed(self, filter_: ir.Value) -> bool:
        """Whether a filter is the same in every call."""
        if self.matmul.plain:
            return numbers_known(filter_)
        return known(filter_) is not None or of_parameters(filter_)

    def _overlapping_pays(self, kernel: Kernel) -> bool:
        """Whether the kernel gathers its rows from the image. For f32: if rows are not pixels. For codes: unless a row
        is so long that few fit the stack, or there are so many runs that their unrolled copies are large code, or,
        without AVX-512, a run is not whole vectors and would be loaded byte by byte."""
        window = kernel.lhs.window
        assert window is not None
        if self.matmul.plain:
            pixels = window.kernel == (1, 1) == window.strides and window.groups == 1 and not window.overhangs
            return self.matmul.micro.lhs_bytes == 4 and not pixels
        if kernel.m is None:
            return False
        vectors = len(window.runs) * -(-window.run // (4 * self.matmul.micro.lanes))
        whole = self.matmul.micro.lanes == 16 or window.run % (4 * self.matmul.micro.lanes) == 0
        return kernel.k <= _LONGEST_ROW and vectors <= _MOST_VECTORS and whole
