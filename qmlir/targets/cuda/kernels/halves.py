"""Integer codes to 16-bit floats, two at a time, without integer-to-float conversions.

A short code in the low bits of a float's mantissa gives `base + code`: 1024 + code in f16 (10 mantissa bits), 128 +
code in bf16 (7 bits). One subtraction of two floats removes base and zero point exactly, and one product applies the
scale (Kim, Henry, Fahim, Awadalla, "Who Says Elephants Can't Run", 2022, section 3; Marlin's kernels use the same
idea). The product of a code's float and a scale of the same type is exact in f32 before it is rounded, so one product
of 16-bit floats is bit-exact with the f32 product, rounded, that the program writes. In f16 a field may be higher in
the mantissa: a fused multiply-add by 2^-p recovers the code from `1024 + 2^p code` without a shift.

With f32 scales, or codes too long for the type, f32 is used likewise: 2^23 + code, then one conversion of two floats.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....dialect.constants import constant_array
from ....ir.walk import made_by, producer
from ....kernels.bodies import BodyCloner
from ....kernels.description import Kernel, Literal, Operand, Stage
from ....kernels.scaled import Scaled, scaled
from ...gpu_kernels import emit as e
from ...gpu_kernels.weights import CodeFormat
from .machine import RULES, rounded

_MANTISSA = {"f16": 10, "bf16": 7, "f32": 23}
_BASE_BITS = {"f16": 0x6400, "bf16": 0x4300, "f32": 0x4B000000}  # of 2 ^ mantissa
_PAIR = 0x00010001  # times a 16-bit value: that value in both halves of a word


@dataclass(frozen=True)
class Halves:
    """The decoding `((field ^ flip) + offset - zero) * scale` of a stored field, whose bits are read as unsigned. It is
    computed in `element` and rounded to `result`."""

    element: str  # "f16" | "bf16" | "f32"
    result: str
    flip: int
    offset: int
    zero: ir.Value | None  # zero and scale are values of the decode's body; None if they are 0 and 1
    scale: ir.Value | None

    @property
    def base(self) -> int:
        return 1 << _MANTISSA[self.element]

    def fragment(
        self, word: ir.Value, number: int, bits: int, held: tuple[ir.Value, ir.Value | None]
    ) -> list[ir.Value]:
        """Both words of a step: the codes at 2 t and 2 t + 1, then those 8 further on. `held`: see the method."""
        less, scale = held
        place = bits * number
        if self.element != "f16" or place + bits > _MANTISSA["f16"]:
            place = 0
        found = []
        for half in range(2):
            value = self._whole(self._based(word, 8 * half + bits * number, bits, place), place, less)
            if scale is not None:
                value = arith.mulf(value, scale)
            if self.element != self.result:
                value = rounded(value, e.vector_of(2, ir.Type.parse(self.result)))
            found.append(e.as_word(value))
        return found

    def _based(self, word: ir.Value, low: int, bits: int, place: int) -> ir.Value:
        """`base + 2 ^ place * (field ^ flip)` for the fields at bit `low` and 16 bits above."""
        mask = (1 << bits) - 1
        bias = _BASE_BITS[self.element] | self.flip << place
        if self.element != "f32":
            fields = arith.andi(e.shifted(word, place - low), e.word((mask << place) * _PAIR))
            return e.as_pair(arith.xori(fields, e.word(bias * _PAIR)), e.vector_of(2, ir.Type.parse(self.element)))
        both = [arith.xori(arith.andi(e.shifted(word, -low - at), e.word(mask)), e.word(bias)) for at in (0, 16)]
        return e.as_type(e.gathered(both), e.vector_of(2, ir.F32Type.get()))

    def _whole(self, based: ir.Value, place: int, less: ir.Value) -> ir.Value:
        """Turn `base + 2 ^ place * field` into `base + field - less`. No step rounds."""
        if not place:
            return arith.subf(based, less)
        scale = 2.0**-place
        kind = ir.VectorType(based.type).element_type
        offset = arith.subf(e.splat(self.base * (1 - scale), 2, kind), less)
        return e.intrinsic("llvm.fma", [based, e.splat(scale, 2, kind), offset], based.type)

    def held(self, stage: Stage, operands: dict[ir.Value, ir.Value]) -> tuple[ir.Value, ir.Value | None]:
        """The subtrahend of both floats of a word, and their scale (None: no scale), as vectors of two. `operands`:
        scalar values of the body's arguments."""
        cloner = BodyCloner(1, RULES)
        known = {argument: e.broadcast(value, 1) for argument, value in operands.items()}
        for argument, source in zip(stage.body.arguments, stage.sources, strict=False):
            if isinstance(source, Literal):
                known[argument] = cloner.splat(source.value)
        kind = ir.Type.parse(self.element)
        less = self.base - self.offset
        if self.zero is None:
            subtrahend = e.splat(float(less), 2, kind)
        else:
            zero = e.lane(cloner.value(self.zero, known), 0)
            whole = arith.sitofp(ir.F32Type.get(), arith.addi(zero, e.constant(less, e.integer(32))))
            subtrahend = e.broadcast(whole, 2)
            if self.element != "f32":
                subtrahend = rounded(subtrahend, e.vector_of(2, kind))
        if self.scale is None:
            return subtrahend, None
        scale = e.lane(cloner.value(self.scale, known), 0)
        return subtrahend, e.broadcast(scale if scale.type == kind else arith.extf(kind, scale), 2)


def halves(kernel: Kernel, storage: CodeFormat) -> Halves | None:
    """How the weight's codes become pairs of the activation's type; None if their decoding has another form."""
    if kernel.rhs.decode is None:
        return None
    element = str(ir.RankedTensorType(kernel.lhs.value.type).element_type)
    return _form(kernel.rhs.decode, element, storage)


def _form(decode: Stage, result: str, storage: CodeFormat) -> Halves | None:
    form = scaled(decode, rounded_to=result)
    if form is None or result not in ("f16", "bf16"):
        return None
    return _of_type(form, decode, result, result, storage) or _of_type(form, decode, "f32", result, storage)


def _of_type(form: Scaled, decode: Stage, element: str, result: str, storage: CodeFormat) -> Halves | None:
    """The form, computed in `element`; None if that is not possible exactly."""
    if storage.bits > _MANTISSA[element]:
        return None
    scale = form.scale
    if scale is not None and element != "f32" and str(scale.type) != element:
        scale = _before_extension(scale)
        if scale is None or str(scale.type) != element:
            return None
    # The value that each field represents, in the order of its bits.
    fields, sign = range(1 << storage.bits), 1 << (storage.bits - 1)
    found = [form.values[((f ^ sign) - sign if storage.signed else f) & 255] for f in fields]
    for flip in (0, sign):
        offset = found[0] - flip
        if offset.is_integer() and found == [(f ^ flip) + offset for f in fields]:
            made = Halves(element, result, flip, int(offset), form.zero, scale)
            return made if _exact(made, decode, storage.bits) else None
    return None


def _before_extension(value: ir.Value) -> ir.Value | None:
    """The operand of the `arith.extf` that makes a value; None for any other value."""
    made = made_by(value, "arith.extf")
    if made is None:
        return None
    return made.operands[0]


def _exact(form: Halves, decode: Stage, bits: int) -> bool:
    """Whether the subtrahend and the difference are always integers that `element` represents exactly."""
    low = high = 0
    if form.zero is not None:
        bounds = _bounds(form.zero, decode)
        if bounds is None:
            return False
        low, high = bounds
    most = 2 * form.base
    least_off, most_off = form.base - form.offset + low, form.base - form.offset + high
    left = (1 << bits) + abs(form.offset) + max(abs(low), abs(high))
    return least_off >= 0 and most_off <= most and left <= most


def _bounds(zero: ir.Value, decode: Stage) -> tuple[int, int] | None:
    """The range of a zero point that is extended to i32: of its values if they are constant, else of its type. None if
    it is not such an operand."""
    owner = made_by(zero, "arith.extsi", "arith.extui")
    if owner is None:
        return None
    argument = owner.operands[0]
    if producer(argument) is not None:
        return None
    width = int(argument.type.width)
    source = decode.sources[list(decode.body.arguments).index(argument)]
    if isinstance(source, Literal):
        value = int(source.value.value)
        value = value & ((1 << width) - 1) if owner.name == "arith.extui" else value
        return value, value
    known = constant_array(source.value) if isinstance(source, Operand) else None
    if known is not None and known.size:
        known = known.view(f"u{known.dtype.itemsize}") if owner.name == "arith.extui" else known
        return int(known.min()), int(known.max())
    return (0, (1 << width) - 1) if owner.name == "arith.extui" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
