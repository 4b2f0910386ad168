"""The complementary error function."""

from __future__ import annotations

from .....core.mlir import arith, ir, math
from .....ir.scalars import const, polynomial
from .scalars import add, compare, div, leading_bits, mul, select, sub


def erfc(x: ir.Value) -> ir.Value:
    """`erfc(x)` by the Chebyshev fit of Numerical Recipes (erfcc, 2nd edition, 6.2: within 1.2e-7 of the result
    everywhere). The exponential is a product of two: that of the square of the leading 12 bits of `|x|`, which is
    exact, and that of the rest."""
    z = math.absf(x)
    t = div(const(1.0), add(const(1.0), mul(const(0.5), z)))
    fit = polynomial(t, (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
                          0.37409196, 1.00002368, -1.26551223))  # fmt: skip
    near = select(compare("OLT", z, const(20.0)), z, const(20.0))
    head = leading_bits(near)
    rest = sub(fit, mul(sub(near, head), add(near, head)))
    tail = mul(t, mul(math.exp(mul(head, arith.negf(head))), math.exp(rest)))
    tail = select(compare("OLT", x, const(0.0)), sub(const(2.0), tail), tail)
    small = sub(const(1.0), math.erf(x))
    return select(compare("UGE", z, const(0.5)), select(compare("UNO", x, x), x, tail), small)
