"""Decides when a kernel takes a depthwise convolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....kernels.convolution import describe_depthwise
from ....kernels.description import Kernel, Unfit
from ....kernels.outline import outline
from ...base import Target
from ...strategy import Accept, Contraction, Decline, Estimate
from ..description import lacks
from ..threads.program import team_of, threads_of
from .depthwise import ChannelVectors, Depthwise
from .forecast import cost_of_depthwise

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_LARGEST_FILTER = 49


@dataclass(frozen=True)
class DepthwisePlan:
    """A depthwise convolution and the ops that are fused with it."""

    kernel: Kernel
    vectors: ChannelVectors

    def apply(self, op: OpLike) -> None:
        last = self.kernel.operations[-1]
        outline(
            self.kernel, lambda: self.vectors.weight(self.kernel), Depthwise(self.kernel, self.vectors).emit,
            lambda: [team_of(last, self.vectors.features)],
        )  # fmt: skip

    def describe(self) -> Mapping[str, int | str]:
        fused = len(self.kernel.operations) - 1
        threads = threads_of(self.vectors.features)
        return {"route": "kernel", "channels": self.vectors.channels, "fused": fused, **threads}


@dataclass(frozen=True)
class DepthwiseStrategy:
    """Depthwise convolutions with a constant filter."""

    target: Target
    vectors: ChannelVectors

    @property
    def name(self) -> str:
        return self.vectors.name

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        declined = lacks(self.target, *self.vectors.features)
        if declined is not None:
            return declined
        if c.kind != "depthwise_conv2d" or c.op is None:
            return Decline(f"a {c.kind}", "a depthwise convolution")
        element, acc = self.vectors.elements
        if (c.lhs, c.rhs, c.acc) != (element, element, acc):
            remedy = "integer codes on both sides" if element == "i8" else f"{element} on both sides"
            return Decline(f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies {element} by {element}", remedy)
        try:
            kernel = describe_depthwise(c.op)
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        if not self.vectors.known(kernel):
            return Decline("the filter is not a constant", "make the filter a constant")
        if kernel.k > _LARGEST_FILTER:
            return Decline(f"a filter of {kernel.k} taps", f"at most {_LARGEST_FILTER} taps: the kernel unrolls them")
        cost = cost_of_depthwise(Depthwise(kernel, self.vectors), self.target.capabilities)
        return Accept(DepthwisePlan(kernel, self.vectors), Estimate(None, cost=cost))
