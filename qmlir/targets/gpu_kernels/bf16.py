"""bf16 for targets without the type, such as SPIR-V: bf16 values are f32 in registers, rounded where the program
rounds, and 16 bits in memory."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.mlir import OpLike, arith, ir
from ...kernels.bodies import BodyCloner, Rule
from . import emit as e
from .machine import Machine


def cloner(lanes: int, machine: Machine, rules: Mapping[str, Rule]) -> BodyCloner:
    """The cloner of bodies for a target."""
    return _WideCloner(lanes, rules) if machine.bf16_as_bits else BodyCloner(lanes, rules)


def stored_type(element: ir.Type, machine: Machine) -> ir.Type:
    """The element type of a kernel's memory for a tensor of `element`."""
    return e.integer(16) if isinstance(element, ir.BF16Type) and machine.bf16_as_bits else element


def loaded(value: ir.Value, element: ir.Type) -> ir.Value:
    """A scalar or vector that was loaded from a tensor of `element`; the bits of bf16 are converted to f32."""
    kind = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    if not isinstance(element, ir.BF16Type) or kind == element:
        return value

    def like(t: ir.Type) -> ir.Type:
        return e.vector_of(value.type.shape[0], t) if isinstance(value.type, ir.VectorType) else t

    wide = arith.shli(arith.extui(like(e.integer(32)), value), _constant(16, like(e.integer(32))))
    return arith.bitcast(like(ir.F32Type.get()), wide)


def bits(value: ir.Value) -> ir.Value:
    """The 16 bits of bf16 values in f32 lanes."""
    lanes = value.type.shape[0]
    i32 = e.vector_of(lanes, e.integer(32))
    return arith.trunci(e.vector_of(lanes, e.integer(16)), arith.shrui(arith.bitcast(i32, value), _constant(16, i32)))


def rounded(value: ir.Value) -> ir.Value:
    """Round f32 lanes to bf16 values, to nearest and ties to even; NaN stays NaN."""
    i32 = e.vector_of(value.type.shape[0], e.integer(32))

    def c(number: int) -> ir.Value:
        return _constant(number, i32)

    word = arith.bitcast(i32, value)
    odd = arith.andi(arith.shrui(word, c(16)), c(1))
    near = arith.addi(arith.addi(word, c(0x7FFF)), odd)
    quiet = arith.ori(word, c(0x00400000))
    kept = arith.select(arith.cmpf(arith.CmpFPredicate.UNO, value, value), quiet, near)
    return arith.bitcast(value.type, arith.andi(kept, c(-0x10000)))


def _constant(value: int, t: ir.Type) -> ir.Value:
    if isinstance(t, ir.VectorType):
        return e.splat(value, t.shape[0], t.element_type)
    return e.constant(value, t)


class _WideCloner(BodyCloner):
    """Clones bodies with bf16 values in f32 lanes; each op with a bf16 result rounds it."""

    def widen(self, t: ir.Type) -> ir.Type:
        return super().widen(ir.F32Type.get() if isinstance(t, ir.BF16Type) else t)

    def splat(self, attribute: ir.Attribute) -> ir.Value:
        if isinstance(attribute.type, ir.BF16Type):
            attribute = ir.FloatAttr.get(ir.F32Type.get(), attribute.value)
        return super().splat(attribute)

    def _made(self, operation: OpLike, known: dict[ir.Value, ir.Value]) -> ir.Value:
        narrow = isinstance(operation.results[0].type, ir.BF16Type)
        if operation.name == "arith.extf" and isinstance(operation.operands[0].type, ir.BF16Type):
            value = self.value(operation.operands[0], known)
            wide = self.widen(operation.results[0].type)
            return value if value.type == wide else arith.extf(wide, value)
        if operation.name == "arith.truncf" and narrow:
            value = self.value(operation.operands[0], known)
            return rounded(value)
        made = super()._made(operation, known)
        return rounded(made) if narrow else made
