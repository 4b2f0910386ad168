"""Functions of f32 vectors, computed in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.mlir import arith, llvm, vector
from . import emit as e

if TYPE_CHECKING:
    from ....core.mlir import ir

# The coefficients of 2 ** x on [-0.5, 0.5], interpolated at the Chebyshev points; relative error 1e-7.
_EXP2 = (1.00000012, 0.693147182, 0.240221068, 0.0555035696, 0.00967603177, 0.00133908633)
# Added to x in [-127, 128), it leaves round(x) + 127 in the low bits.
_MAGIC = 1.5 * 2.0**23 + 127


def transposed(rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose a square of vectors by interleaving its first half with its second, log2(lanes) times."""
    lanes = len(rows)
    half = lanes // 2
    low = [i // 2 + (i % 2) * lanes for i in range(lanes)]
    high = [i + half for i in low]
    for _ in range(lanes.bit_length() - 1):
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [vector.shuffle(a, b, order) for a, b in pairs for order in (low, high)]
    return rows


def larger(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger of two values as one instruction, `vmaxps`; `b` if `a` is NaN."""
    return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, a, b), a, b)


def exp2(x: ir.Value) -> ir.Value:
    """2 ** x for x <= 0, and 0 below -127. NaN stays NaN."""
    lanes, f32 = x.type.shape[0], x.type.element_type

    def splat(value: float) -> ir.Value:
        return e.splat(value, lanes, f32)

    x = larger(splat(-127.0), x)
    shifted = arith.addf(x, splat(_MAGIC))
    f = arith.subf(x, arith.subf(shifted, splat(_MAGIC)))
    value = splat(_EXP2[-1])
    for c in reversed(_EXP2[:-1]):
        value = llvm.FMAOp(value, f, splat(c)).result
    words = e.vector_of(lanes, e.integer(32))
    power = arith.shli(vector.bitcast(words, shifted), e.splat(23, lanes, e.integer(32)))
    return arith.mulf(value, vector.bitcast(x.type, power))
