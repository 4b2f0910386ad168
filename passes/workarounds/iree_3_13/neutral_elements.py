"""qmlir-neutral-elements: reduce integers by operations whose neutral element IREE knows, on CUDA and ROCm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.build import scalar
from ....ir.reductions import Keys, Reduced, reduce_keys, reduced, within_lanes
from ....ir.walk import collect
from ...base import Pass, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....core.mlir import OpLike

    Combine = Callable[[ir.Value, ir.Value], ir.Value]

FAULTS = (
    Fault(
        "IREE initialises the minimum across lanes of signed integers of up to 32 bits with -1, and the maximum with "
        "0: the low bits of the largest and the smallest 64-bit integer.",
        canary="smallest_integer",
    ),
    Fault(
        "IREE initialises a reduction across lanes by `arith.andi` with 0, so that its result is always false.",
        canary="all_of_many",
    ),
    Fault(
        "LLVM for AMD ends the process where 8-bit integers are reduced across lanes (`Do not know how to promote this "
        "operator!`).",
        canary="sum_of_bytes",
    ),
)

_WIDTH = 32  # bits that lanes exchange at once


@dataclass(frozen=True)
class NeutralElementsPass(Pass):
    """Replace integer reductions for which IREE 3.13 takes the wrong neutral element, the value that each lane starts
    with: `arith.minsi` and `arith.maxsi` of up to 32 bits, `arith.minui` and `arith.maxui` of 64, and `arith.andi`. A
    minimum or maximum becomes that of the other signedness, on integers with the sign bit flipped, which have the same
    order. `arith.andi` becomes `arith.ori` of the complements.

    Integers of less than 32 bits are reduced in 32 bits, which LLVM can exchange between lanes on AMD GPUs.
    """

    name: ClassVar[str] = "qmlir-neutral-elements"
    summary: ClassVar[str] = "reduce integers by operations whose neutral element IREE knows (CUDA, ROCm)"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=_reductions):
            with ir.InsertionPoint(op), op.location:
                reduce_keys(op, [(one, _keys(one)) for one in _reductions(op)])


def _reductions(op: OpLike) -> list[Reduced]:
    """The reductions of an op that need another operation or another width."""
    found = reduced(op, _COMBINED)
    if found and within_lanes(op):
        return []
    return [
        one for one in found
        if isinstance(one.element.type, ir.IntegerType)
        and ((width := one.element.type.width) < _WIDTH or _replacement(one.combined.name, width))
    ]  # fmt: skip


_SIGNED = ("arith.minsi", "arith.maxsi")
_UNSIGNED = ("arith.minui", "arith.maxui")
_COMBINED: dict[str, Combine] = {
    "arith.minsi": arith.minsi, "arith.maxsi": arith.maxsi, "arith.minui": arith.minui, "arith.maxui": arith.maxui,
    "arith.andi": arith.andi, "arith.ori": arith.ori, "arith.xori": arith.xori, "arith.addi": arith.addi,
    "arith.muli": arith.muli,
}  # fmt: skip


def _replacement(name: str, width: int) -> str:
    """The operation that replaces one for which IREE takes a wrong neutral element; "" if it takes the right one."""
    if name == "arith.andi":
        return "arith.ori"
    if name in _SIGNED and width <= _WIDTH:
        return _UNSIGNED[_SIGNED.index(name)]
    if name in _UNSIGNED and width > _WIDTH:
        return _SIGNED[_UNSIGNED.index(name)]
    return ""


def _keys(one: Reduced) -> Keys:
    name, t = one.combined.name, one.element.type
    wide = t if t.width >= _WIDTH else ir.IntegerType.get_signless(_WIDTH)
    other = _replacement(name, wide.width)
    mask = -1 if name == "arith.andi" else -(1 << (wide.width - 1))
    extend = arith.extui if name in _UNSIGNED else arith.extsi

    def changed(x: ir.Value) -> ir.Value:
        return arith.xori(x, scalar(mask, wide)) if other else x

    def key(x: ir.Value) -> ir.Value:
        return changed(x if t == wide else extend(wide, x))

    def number(x: ir.Value) -> ir.Value:
        return changed(x) if t == wide else arith.trunci(t, changed(x))

    return Keys(wide, key, _COMBINED[other or name], number)
