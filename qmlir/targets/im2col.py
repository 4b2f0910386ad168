"""A convolution as a matrix product of its patches, for targets whose code generation has no implicit GEMM.

`[N,H,W,C] -> patches [N*OH*OW, KH*KW*C]`, times the filter `[F, KH*KW*C]`. The patches are written out once, in
int8: KH*KW times the input (nothing for a 1x1 window without strides, whose patches are the input).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..strategy import Accept, Contraction, Decline, Plan, Strategy, decide


@dataclass(frozen=True)
class Im2colPlan:
    """Rewrite to patches and a matmul, then do with the matmul what `inner` says."""

    inner: Plan
    strategy: str  # the name of the inner plan's strategy
    keep: bool  # a barrier behind the matmul, too

    def apply(self, op: Any) -> None:
        from .._mlir import ir
        from .patches import convolution_as_matmul

        with ir.InsertionPoint(op):
            result, matmul = convolution_as_matmul(op, self.keep)
        op.results[0].replace_all_uses_with(result)
        op.erase()
        self.inner.apply(matmul)

    def describe(self) -> Mapping[str, Any]:
        return {"route": "im2col", "strategy": self.strategy, "matmul": dict(self.inner.describe())}


def as_matmul(c: Contraction) -> Contraction:
    """What the matmul of a convolution is."""
    sizes = (*c.batch, c.m, c.n, c.k)
    return replace(c, kind="matmul", roles=("b",) * len(c.batch) + ("m", "n", "k"), sizes=sizes, op=None)


def _dynamic_image(op: Any) -> bool:
    result = op.results[0].type
    return any(result.is_dynamic_dim(d) for d in range(1, result.rank))


@dataclass(frozen=True)
class Im2colStrategy:
    """Convolutions whose sizes are static but for the batch, by the first of `matmuls` that takes the matmul."""

    matmuls: Sequence[Strategy]
    # The stock route of this target has an implicit GEMM, but for static sizes alone.
    only_dynamic: bool = False
    # Whether the matmul must stay as it is for its tiles to fit: IREE would make its M the image's three
    # dims again, to fuse what follows. On a CPU that is welcome.
    keep: bool = True
    name: str = "im2col"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if c.kind != "conv2d":
            return Decline(f"a {c.kind}, no convolution over channels", "none needed")
        if self.only_dynamic and c.m is not None:
            return Decline("all sizes are static: an implicit GEMM needs no patches in memory", "none needed")
        if c.k is None or c.n is None or c.op is None or _dynamic_image(c.op):
            return Decline("a size beside the batch is dynamic", "static sizes of image and filter")
        decision, plan = decide(as_matmul(c), self.matmuls)
        if plan is None:
            reasons = "; ".join(f"{n}: {a.reason}" for n, a in decision.answers if isinstance(a, Decline))
            return Decline(f"its matmul was declined ({reasons})", "see the reasons")
        accepted = next(a for n, a in decision.answers if n == decision.chosen and isinstance(a, Accept))
        return Accept(Im2colPlan(plan, decision.chosen, self.keep), accepted.estimate)
