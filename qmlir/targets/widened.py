"""Exact products of one-byte floats on 16-bit matrix instructions.

f16 and bf16 represent every code of e4m3 and e5m2, OCP and FNUZ, exactly, and f32 every product of two of them. If a
target has no matrix instruction for the operands' formats (another vendor's format, two different
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
    """Convert the operands to `dtype`, and apply the plan `inner` to the product."""

    dtype: str
    inner: Plan
    strategy: str  # the name of the inner plan's strategy
    separate: bool = False  # whether the operands are converted before the product, not fused into it

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
    """Matmuls with a one-byte float operand, computed in `dtype` by the first of `matmuls` that accepts them.

    `dtype` is f32 if the target has no matrix instruction. The other operand may also be f16 or bf16; the codes are
    then converted to its type.
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
    """Convert a tensor of small floats to the wider type `t`, which represents each of their values exactly."""
    if type_of(value).element_type == t:
        return value
    f32 = ir.F32Type.get()

    def body(x: ir.Value) -> ir.Value:
        wide = arith.extf(f32, x)
        return wide if t == f32 else arith.truncf(t, wide)

    converted = elementwise(value, t, body)
    return fusion_barrier(converted, Reason.CONVERTED_ONCE) if separate else converted


def widened(op: OpLike, dtype: str, separate: bool = False) -> ir.Value:
    """The result of the matmul-like `op` on operands converted to `dtype`; if `separate`, they are written to memory
    before it."""
    t = ir.Type.parse(dtype)
    maps = indexing_maps(op)
    out = list(maps[2].results)
    dims = [ir.AffineDimExpr.get(d) for d in range(maps[0].n_dims)]
    kinds = ["parallel" if d in out else "reduction" for d in dims]
    operands = [_converted(value, t, separate) for value in list(op.operands)[:2]]
    return generic(operands, op.operands[2], maps, kinds, multiply_add)
