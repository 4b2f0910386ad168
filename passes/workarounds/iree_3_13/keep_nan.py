"""qmlir-keep-nan: keep NaN in maxima and minima, on GPUs where IREE loses it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.build import scalar
from ....ir.reductions import Keys, Reduced, reduce_keys, reduced, reduces
from ....ir.walk import collect, made_by, producer
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE compiles `arith.maximumf` for AMD to an instruction that returns the other operand if one is NaN.",
        canary="maximum_of_nan",
        upstream="https://github.com/iree-org/iree/pull/15069",
    ),
)


_COMPARE = {"arith.maximumf": arith.CmpFPredicate.OGT, "arith.minimumf": arith.CmpFPredicate.OLT}
_UNO = arith.CmpFPredicate.UNO


@dataclass(frozen=True)
class KeepNanPass(Pass):
    """Replace `arith.maximumf` and `arith.minimumf` of values that may be NaN by comparisons and selects, and
    reductions with these ops by reductions of integers that have the same order.

    IREE 3.13 compiles the two to `v_max` and `v_min` for AMD GPUs, and to `max.f32` and `min.f32` for `sm_90a`, which
    return the other operand for NaN: a relu of NaN was 0. The maximum of a softmax is unchanged, because the sum of
    exponentials propagates NaN to the whole row.
    """

    name: ClassVar[str] = "qmlir-keep-nan"
    summary: ClassVar[str] = "replace maxima and minima that lose NaN by comparisons (ROCm, sm_90a)"

    def run(self, module: ir.Module, state: State) -> None:
        reductions = collect(module, where=_reductions)
        found = collect(
            module, *_COMPARE, where=lambda op: not reduces(op, _COMPARE) and not all(map(_never_nan, op.operands))
        )
        for op in found:
            a, b = op.operands
            with ir.InsertionPoint(op), op.location:
                if _never_nan(b):
                    kept = arith.select(arith.cmpf(_COMPARE[op.name], b, a), b, a)
                else:
                    kept = arith.select(arith.cmpf(_COMPARE[op.name], a, b), a, b)
                    if not _never_nan(a):
                        kept = arith.select(arith.cmpf(_UNO, a, a), a, kept)
            op.results[0].replace_all_uses_with(kept)
            op.erase()
        for op in reductions:
            with ir.InsertionPoint(op), op.location:
                reduce_keys(op, [(one, _keys(one)) for one in _reductions(op)])


# ----------------------------------------------------------------------------------------------- reductions


def _reductions(op: OpLike) -> list[Reduced]:
    """The reductions of an op that lose NaN."""
    return [one for one in reduced(op, _COMPARE) if _loses_nan(one)]


def _loses_nan(one: Reduced) -> bool:
    return not _never_nan(one.element) and not all(map(_in_softmax, one.result.uses))


def _in_softmax(use: ir.OpOperand) -> bool:
    """Whether a use of a maximum computes `exp(x - maximum)`."""
    reader = use.owner.operation
    if reader.name != "linalg.generic":
        return False
    argument = reader.regions[0].blocks[0].arguments[use.operand_number]
    differences = [u.owner.operation for u in argument.uses]
    return bool(differences) and all(
        d.name == "arith.subf" and d.operands[1] == argument
        and all(u.owner.operation.name in ("math.exp", "math.exp2") for u in d.results[0].uses)
        for d in differences
    )  # fmt: skip


def _keys(one: Reduced) -> Keys:
    """The integers that replace the floats of a reduction by maximum or minimum."""
    name, t = one.combined.name, one.element.type
    combine = arith.maxsi if name == "arith.maximumf" else arith.minsi
    return Keys(_integer(t), lambda x: _ordered(x, name), combine, lambda x: _number_of(x, t))


def _integer(t: ir.Type) -> ir.Type:
    return ir.IntegerType.get_signless(64 if isinstance(t, ir.F64Type) else 32)


def _ordered(x: ir.Value, combination: str) -> ir.Value:
    """An integer that orders as the float `x` does, with every NaN above (for a maximum) or below all others.

    The bits of floats from 0 up order as integers; those of floats below 0 do if all bits except the sign are flipped.
    """
    i = _integer(x.type)
    bits = arith.bitcast(i, x if x.type.width >= 32 else arith.extf(ir.F32Type.get(), x))
    largest = (1 << (i.width - 1)) - 1
    nan = largest if combination == "arith.maximumf" else -largest - 1
    return arith.select(arith.cmpf(_UNO, x, x), scalar(nan, i), _flipped(bits))


def _number_of(x: ir.Value, t: ir.Type) -> ir.Value:
    """The float whose integer `x` is (`_ordered`): the two integers that represent NaN decode to a NaN."""
    wide = ir.F64Type.get() if isinstance(t, ir.F64Type) else ir.F32Type.get()
    number = arith.bitcast(wide, _flipped(x))
    return number if number.type == t else arith.truncf(t, number)


def _flipped(bits: ir.Value) -> ir.Value:
    i = bits.type
    below = arith.cmpi(arith.CmpIPredicate.slt, bits, scalar(0, i))
    return arith.select(below, arith.xori(bits, scalar((1 << (i.width - 1)) - 1, i)), bits)


# -------------------------------------------------------------------------------------------- known values


def _never_nan(value: ir.Value) -> bool:
    """Whether a value is known not to be NaN: a constant, a converted integer, a select that replaces NaN; an
    extension, a broadcast, a maximum or a minimum of such values; or a sum of them of which one is a converted integer,
    which is finite."""
    op = producer(value)
    if op is None:
        return False
    if op.name == "arith.constant":
        constant = op.attributes["value"]
        if isinstance(constant, ir.DenseElementsAttr) and constant.is_splat:
            constant = constant.get_splat_value()
        return isinstance(constant, ir.FloatAttr) and not math.isnan(constant.value)
    if op.name in ("arith.sitofp", "arith.uitofp"):
        return True
    if op.name in _COMPARE or op.name in ("arith.extf", "vector.broadcast"):
        return all(map(_never_nan, op.operands))
    if op.name == "arith.addf":
        return all(map(_never_nan, op.operands)) and any(map(_from_integer, op.operands))
    return op.name == "arith.select" and _replaces_nan(op)


def _from_integer(value: ir.Value) -> bool:
    return made_by(value, "arith.sitofp", "arith.uitofp") is not None


def _replaces_nan(op: OpLike) -> bool:
    """Whether a select is `x is NaN ? number : f(x)`, the form in which a requantisation reads its operand
    (ir/scalars.py)."""
    condition, number, _ = op.operands
    test = made_by(condition, "arith.cmpf")
    if test is None or not _never_nan(number) or ir.IntegerAttr(test.attributes["predicate"]).value != int(_UNO):
        return False
    return bool(test.operands[0] == test.operands[1])
