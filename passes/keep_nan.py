"""qmlir-keep-nan: the larger and the smaller of two numbers are NaN where one is, on GPUs where IREE loses it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .._mlir import arith, ir
from .base import Pass, State

_BEYOND = {"arith.maximumf": arith.CmpFPredicate.OGT, "arith.minimumf": arith.CmpFPredicate.OLT}
_UNO = arith.CmpFPredicate.UNO


@dataclass(frozen=True)
class KeepNanPass(Pass):
    """Brings `arith.maximumf` and `arith.minimumf` of values that may be NaN into comparisons and selections.

    IREE 3.13 compiles the two for AMD GPUs as `v_max` and `v_min`, and for `sm_90a` as `max.f32` and `min.f32`, which
    give the other operand for NaN: a relu of NaN was 0. Reductions by one of them stay, because IREE finds them by it.
    """

    name: ClassVar[str] = "qmlir-keep-nan"
    summary: ClassVar[str] = "comparisons in the place of maxima and minima that lose NaN (ROCm, sm_90a)"

    def run(self, module: Any, state: State) -> None:
        found: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name in _BEYOND and not _reduces(op) and not all(map(_is_number, op.operands)):
                found.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for op in found:
            a, b = op.operands
            with ir.InsertionPoint(op), op.location:
                if _is_number(b):
                    kept = arith.select(arith.cmpf(_BEYOND[op.name], b, a), b, a)
                else:
                    kept = arith.select(arith.cmpf(_BEYOND[op.name], a, b), a, b)
                    if not _is_number(a):
                        kept = arith.select(arith.cmpf(_UNO, a, a), a, kept)
            op.results[0].replace_all_uses_with(kept)
            op.erase()


def _reduces(op: Any) -> bool:
    """Whether it combines an element with a running value of a `linalg.generic`."""
    block = op.operation.block
    owner = block.owner
    if owner is None or owner.name != "linalg.generic":
        return False
    running = list(block.arguments)[-len(owner.results) :]
    return any(operand == value for operand in op.operands for value in running)


def _is_number(value: Any) -> bool:
    """Whether a value is known not to be NaN: a constant, an integer as a float, one that was NaN and was replaced, and
    sums and bounds of those, of which one operand is finite."""
    if isinstance(value.owner, ir.Block):
        return False
    op = value.owner.operation
    if op.name == "arith.constant":
        constant = op.attributes["value"]
        if isinstance(constant, ir.DenseElementsAttr) and constant.is_splat:
            constant = constant.get_splat_value()
        return isinstance(constant, ir.FloatAttr) and not math.isnan(constant.value)
    if op.name in ("arith.sitofp", "arith.uitofp"):
        return True
    if op.name in _BEYOND or op.name in ("arith.extf", "vector.broadcast"):
        return all(map(_is_number, op.operands))
    if op.name == "arith.addf":
        return all(map(_is_number, op.operands)) and any(map(_from_integer, op.operands))
    return op.name == "arith.select" and _replaces_nan(op)


def _from_integer(value: Any) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name in ("arith.sitofp", "arith.uitofp")


def _replaces_nan(op: Any) -> bool:
    """`x is NaN ? number : f(x)`, which is how a requantisation reads its operand (passes/lower/scalars.py)."""
    condition, number, _ = op.operands
    if isinstance(condition.owner, ir.Block) or not _is_number(number):
        return False
    test = condition.owner.operation
    if test.name != "arith.cmpf" or ir.IntegerAttr(test.attributes["predicate"]).value != int(_UNO):
        return False
    return bool(test.operands[0] == test.operands[1])
