"""Products of one-byte floats on 16-bit matrix instructions, exact.

Every code of e4m3 and e5m2, OCP and FNUZ, is a value of f16 and of bf16, and so is every product of two of them in
f32. Where a target has no matrix instruction for the operands' formats (another vendor's format, two different
ones), or has one that does not keep the sum in f32, the codes are converted and multiplied as 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.mlir import arith, ir
from ..ir.affine import indexing_maps
from ..ir.barriers import Reason, fusion_barrier
from ..ir.walk import defining_op
from .base import FLOAT8
from .strategy import Accept, Contraction, Decline, Facts, Plan, Strategy, decide
from .tensors import elementwise, generic, multiply_add, type_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike


@dataclass(frozen=True)
class WidenedPlan:
    """Convert the operands, then do with the product what `inner` says."""

    dtype: str
    inner: Plan
    strategy: str  # the name of the inner plan's strategy
    separate: bool = False  # the converted operands are made before the product, not fused into it

    def apply(self, op: OpLike) -> None:
        with ir.InsertionPoint(op):
            product = widened(op, self.dtype, self.separate)
        op.results[0].replace_all_uses_with(product)
        op.erase()
        self.inner.apply(defining_op(product))

    def describe(self) -> Facts:
        return {"route": f"in {self.dtype}", "strategy": self.strategy, "product": dict(self.inner.describe())}


@dataclass(frozen=True)
class WidenedStrategy:
    """Matmuls with a one-byte float, in `dtype` by the first of `matmuls` that takes them.

    `dtype` is f32 where a target has no matrix instruction. The other side may be f16 or bf16 too, and is then what
    the codes become.
    """

    dtype: str
    matmuls: Sequence[Strategy]
    name: str = "widened"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        sides = {c.lhs, c.rhs}
        if c.kind != "matmul" or not sides & set(FLOAT8):
            return Decline(f"{c.lhs} x {c.rhs} is not a product of one-byte floats", "none needed")
        others = sides - set(FLOAT8)
        if others - {"f16", "bf16"}:
            return Decline(f"{c.lhs} x {c.rhs} is not exact in 16 bits", "one-byte floats on both sides")
        dtype = next(iter(others), self.dtype)
        decision, plan = decide(replace(c, lhs=dtype, rhs=dtype), self.matmuls)
        if plan is None:
            reasons = "; ".join(f"{n}: {a.reason}" for n, a in decision.answers if isinstance(a, Decline))
            return Decline(f"its product in {dtype} was declined ({reasons})", "see the reasons")
        accepted = next(a for n, a in decision.answers if n == decision.chosen and isinstance(a, Accept))
        return Accept(WidenedPlan(dtype, plan, decision.chosen), accepted.estimate)


def _converted(value: ir.Value, t: ir.Type, separate: bool) -> ir.Value:
    """A tensor of small floats as one of the wider type `t`; each of its values is exact there."""
    if type_of(value).element_type == t:
        return value
    f32 = ir.F32Type.get()

    def body(x: ir.Value) -> ir.Value:
        wide = arith.extf(f32, x)
        return wide if t == f32 else arith.truncf(t, wide)

    converted = elementwise(value, t, body)
    return fusion_barrier(converted, Reason.CONVERTED_ONCE) if separate else converted


def widened(op: OpLike, dtype: str, separate: bool = False) -> ir.Value:
    """The result of the matmul-like `op` on operands of `dtype`, which are in memory before it where `separate`."""
    t = ir.Type.parse(dtype)
    maps = indexing_maps(op)
    out = list(maps[2].results)
    dims = [ir.AffineDimExpr.get(d) for d in range(maps[0].n_dims)]
    kinds = ["parallel" if d in out else "reduction" for d in dims]
    operands = [_converted(value, t, separate) for value in list(op.operands)[:2]]
    return generic(operands, op.operands[2], maps, kinds, multiply_add)
