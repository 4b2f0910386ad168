"""Matches requantisation in a body, for targets with conversions that round and saturate."""

from __future__ import annotations

from ..core.mlir import ir
from ..ir.walk import defining_op, made_by
from .bodies import scalar_constant


def _operands_of(value: ir.Value, name: str) -> list[ir.Value] | None:
    """The operands of the op that makes a value, None if the op is not `name`."""
    made = made_by(value, name)
    return None if made is None else list(made.operands)


def requantised(value: ir.Value) -> tuple[ir.Value, ir.Value | None, float, float] | None:
    """`x, zero, lo, hi` of a value `clamp(roundeven(x) + zero, lo, hi)` in which a NaN rounds to 0 (as
    ir/scalars.py: requantize emits it); `zero` is None if nothing is added. None for any other value."""
    bounds = []
    for name in ("arith.minimumf", "arith.maximumf"):
        pair = _operands_of(value, name)
        bound = None if pair is None else scalar_constant(pair[1])
        if pair is None or bound is None:
            return None
        value = pair[0]
        bounds.append(float(bound.value))
    hi, lo = bounds
    zero = None
    if (pair := _operands_of(value, "arith.addf")) is not None:
        value, zero = pair
    chosen = _operands_of(value, "arith.select")
    rounded = None if chosen is None else _operands_of(chosen[2], "math.roundeven")
    if chosen is None or rounded is None:
        return None
    compared, nan = _operands_of(chosen[0], "arith.cmpf"), scalar_constant(chosen[1])
    uno = 14
    if compared != [rounded[0]] * 2 or int(defining_op(chosen[0]).attributes["predicate"].value) != uno:
        return None
    if nan is None or float(nan.value) != 0.0 or not (lo.is_integer() and hi.is_integer()):
        return None
    return rounded[0], zero, lo, hi
