"""When a kernel of ours takes a contraction. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....strategy import Accept, Contraction, Decline, Estimate
from ...base import Target

if TYPE_CHECKING:
    from ....dialect.dtypes import Array
    from ....kernels.description import Kernel
    from .micro import Micro, Weights

# Below so many rows, packing a weight in every call costs more than the product.
_ROWS_FOR_PACKING = 16


@dataclass(frozen=True)
class KernelPlan:
    """A kernel in the place of the contraction and of what is fused with it."""

    kernel: Kernel
    micro: Micro
    weights: Weights
    codes: Array | None  # of a constant weight, [N, K]

    def apply(self, op: Any) -> None:
        from ...._mlir import ir
        from ....kernels.outline import outline
        from ..threads.program import team_of
        from .gemm import Gemm
        from .pack import packed

        gemm = Gemm(self.kernel, self.micro, self.weights)
        last = self.kernel.operations[-1]
        with last.location, ir.InsertionPoint(last):
            rhs = packed(gemm, self.codes)
        outline(self.kernel, rhs, gemm.emit, lambda: [team_of(last)])

    def describe(self) -> Mapping[str, Any]:
        from .gemm import Gemm

        gemm = Gemm(self.kernel, self.micro, self.weights)
        return {
            "route": "kernel",
            "micro": self.micro.name,
            "weight_bits": self.weights.bits,
            "tiles": [[size.rows, self.micro.panel, size.block_k] for size in gemm.sizes],
            "chunk": [gemm.chunk_rows, gemm.chunk_panels * self.micro.panel],
            "fused": len(self.kernel.operations) - 1,
        }


@dataclass(frozen=True)
class KernelStrategy:
    """Integer products by one micro-kernel."""

    target: Target
    micro: Micro

    @property
    def name(self) -> str:
        return self.micro.name

    def consider(self, contraction: Contraction) -> Accept | Decline:
        from ....kernels.description import Unfit
        from ....kernels.group import describe

        c = contraction
        have = set(self.target.cpu_features)
        if not any(needed <= have for needed in self.micro.features):
            missing = min((sorted(needed - have) for needed in self.micro.features), key=len)
            return Decline(f"{self.target.spelling} lacks {', '.join(missing)}", "name a CPU that has it")
        if c.kind != "matmul":
            return Decline(f"a {c.kind}", "write it as a matmul")
        if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32"):
            return Decline(
                f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies i8 by i8", "integer codes on both sides"
            )
        if c.op is None:
            return Decline("what is fused with it is not known", "none needed")
        try:
            kernel = describe(c.op)
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return self.check(kernel)

    def check(self, kernel: Kernel) -> Accept | Decline:
        """Whether this micro-kernel computes `kernel`."""
        from .pack import constant_codes, weights_for

        if sum(size is None for size in kernel.row_sizes) > 1:
            return Decline("more than one axis of the rows is dynamic", "at most one dynamic axis")
        if kernel.m is not None and kernel.m < self.micro.fewest_rows:
            return Decline(f"{kernel.m} rows leave most of a tile unused", "vector instructions are as fast")
        if 4 * kernel.n < self.micro.lanes:
            return Decline(
                f"N is {kernel.n}: fewer columns than a quarter of a vector's {self.micro.lanes} lanes",
                "the stock route sums along K across lanes",
            )
        codes = constant_codes(kernel)
        weights = weights_for(codes, kernel, self.micro)
        depth = self.micro.depth(weights)
        if kernel.group is not None and kernel.group % depth:
            return Decline(
                f"groups of {kernel.group} along K are no multiple of {depth}, the codes of one step",
                f"a group size of {depth} or a multiple",
            )
        if codes is None and (kernel.m is None or kernel.m < _ROWS_FOR_PACKING):
            rows = "a number of rows that is not known" if kernel.m is None else f"{kernel.m} rows"
            return Decline(
                f"the weight is an argument: packing it in every call does not pay for {rows}",
                "make the weight a constant or a parameter",
            )
        if codes is None and kernel.rhs.source_axes not in (("n", "k"), ("k", "n")):
            return Decline("the weight is an argument and has groups", "make the weight a constant or a parameter")
        if kernel.lhs.source_axes[-1] != "k" or set(kernel.lhs.source_axes) - {"m", "g", "k"}:
            return Decline("K is not the last axis of the activation", "an activation [M, K]")
        return Accept(KernelPlan(kernel, self.micro, weights, codes), Estimate(None))
