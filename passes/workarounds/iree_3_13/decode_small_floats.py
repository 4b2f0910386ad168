"""qmlir-decode-small-floats: convert one-byte floats in integer arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.walk import collect
from ....kernels.small_floats import FORMATS, SCALE, decoded
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike


FAULTS = (
    Fault(
        "IREE does not convert one-byte floats for NVIDIA.",
        canary="float8",
        upstream="https://github.com/iree-org/iree/issues/24625",
    ),
)


@dataclass(frozen=True)
class DecodeSmallFloatsPass(Pass):
    """Replace `arith.extf` of a one-byte float by integer arithmetic on its bits, exact for every code, and
    `arith.truncf` to one by arithmetic on the bits of an f32, rounding to nearest, ties to even.

    IREE 3.13 has no such conversions for NVIDIA, and for AMD only those of the architecture's own formats. `keep` lists
    the formats, separated by `|`, that the target converts itself. Contractions with a matrix instruction for the
    format (`compilation_info`) are unchanged.
    """

    name: ClassVar[str] = "qmlir-decode-small-floats"
    summary: ClassVar[str] = "convert one-byte floats by integer arithmetic"

    keep: str = ""

    def run(self, module: ir.Module, state: State) -> None:
        kept = set(self.keep.split("|"))

        def missing(op: OpLike) -> bool:
            if op.name == "arith.extf":
                name = str(op.operands[0].type)
                return name not in kept and (name in FORMATS or name == SCALE) and not _configured(op)
            name = str(op.results[0].type)
            return name not in kept and name in FORMATS and str(op.operands[0].type) != "f64"

        for op in collect(module, "arith.extf", "arith.truncf", where=missing):
            with ir.InsertionPoint(op), op.location:
                t = op.results[0].type
                if op.name == "arith.truncf":
                    value = _encoded(op.operands[0], t)
                else:
                    value = _decoded(op.operands[0])
                op.results[0].replace_all_uses_with(value if value.type == t else arith.truncf(t, value))
            op.erase()


def _configured(op: OpLike) -> bool:
    parent = op.parent
    return parent is not None and "compilation_info" in parent.operation.attributes


def _decoded(x: ir.Value) -> ir.Value:
    """The f32 value of a scalar code."""
    byte = arith.bitcast(ir.IntegerType.get_signless(8), x)
    return decoded(arith.extui(ir.IntegerType.get_signless(32), byte), str(x.type))


def _encoded(x: ir.Value, t: ir.Type) -> ir.Value:
    """The code nearest to a scalar float, ties to even. Values beyond the largest finite code become infinity, or NaN
    if the format has no infinity."""
    i32, f32 = ir.IntegerType.get_signless(32), ir.F32Type.get()
    form = FORMATS[str(t)]

    def c(value: int) -> ir.Value:
        return arith.constant(i32, value)

    def when(predicate: str, a: ir.Value, b: int, yes: ir.Value, no: ir.Value) -> ir.Value:
        return arith.select(arith.cmpi(getattr(arith.CmpIPredicate, predicate), a, c(b)), yes, no)

    dropped = 23 - form.mantissa
    bits = arith.bitcast(i32, x if x.type == f32 else arith.extf(f32, x))
    size = arith.andi(bits, c(0x7FFFFFFF))
    last = arith.andi(arith.shrui(size, c(dropped)), c(1))
    rounded = arith.shrui(arith.addi(size, arith.addi(last, c((1 << (dropped - 1)) - 1))), c(dropped))
    normal = arith.subi(rounded, c((127 - form.bias) << form.mantissa))
    # In units of the smallest positive code; adding 2^23 leaves the rounded integer in the low bits.
    steps = arith.mulf(arith.bitcast(f32, size), arith.constant(f32, 2.0 ** (form.bias + form.mantissa - 1)))
    whole = arith.bitcast(i32, arith.addf(steps, arith.constant(f32, 2.0**23)))
    subnormal = arith.subi(whole, c((127 + 23) << 23))
    code = when("ult", size, (128 - form.bias) << 23, subnormal, normal)
    infinite, nan = {"fn": (0x7F, 0x7F), "inf": (0x7C, 0x7E), "fnuz": (0x80, 0x80)}[form.special]
    largest = {"fn": 0x7E, "inf": 0x7B, "fnuz": 0x7F}[form.special]
    code = when("sgt", code, largest, c(infinite), code)
    code = when("ugt", size, 0x7F800000, c(nan), code)
    sign = arith.andi(arith.shrui(bits, c(24)), c(0x80))
    if form.special == "fnuz":  # there is no negative zero
        sign = when("eq", code, 0, c(0), sign)
    code = arith.ori(code, sign)
    return arith.bitcast(t, arith.trunci(ir.IntegerType.get_signless(8), code))
