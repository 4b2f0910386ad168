"""Values of AMD's pseudocode: a type ("u", "i", "f", "b"), a width in bits and a number."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_KINDS = {16: np.float16, 32: np.float32, 64: np.float64}


class Unknown(Exception):
    """Pseudocode that the evaluator does not support."""


class Break(Exception):
    """The statement that leaves a loop."""


@dataclass(frozen=True)
class Value:
    kind: str
    width: int
    number: Any
    nan: int | None = None  # the bits of a NaN that was read: Python's floats do not keep them

    @property
    def bits(self) -> int:
        if self.kind == "f":
            if self.nan is not None:
                return self.nan
            if self.width == 16:
                return int(np.array(self.number, np.float16).view(np.uint16))
            return int.from_bytes(
                struct.pack(_FORMATS[self.width], np.array(self.number).astype(_KINDS[self.width])), "little"
            )
        return int(self.number) & ((1 << self.width) - 1)

    def as_type(self, kind: str, width: int) -> Value:
        """The low bits read as another type."""
        return read(self.bits, kind, width)


def read(bits: int, kind: str, width: int) -> Value:
    bits &= (1 << width) - 1
    if kind == "f":
        number = struct.unpack(_FORMATS[width], bits.to_bytes(width // 8, "little"))[0]
        return Value("f", width, number, bits if math.isnan(number) else None)
    if kind == "i" and bits >> (width - 1):
        bits -= 1 << width
    return Value("u" if kind == "b" else kind, width, bits)


def rounded(exact: Fraction | float, width: int) -> float:
    """Round to nearest even."""
    if isinstance(exact, float) and not math.isfinite(exact):
        return exact
    exact = Fraction(exact)
    if exact == 0:
        return 0.0
    digits, least, most = {16: (11, -24, 16), 32: (24, -149, 128), 64: (53, -1074, 1024)}[width]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** max(exponent - digits + 1, least)
    found = round(exact / step) * step
    return math.copysign(math.inf if abs(found) >= Fraction(2) ** most else float(abs(found)), exact)


def _to_int(low: int, high: int, width: int, kind: str) -> Callable[[Value], Value]:
    def convert(x: Value) -> Value:
        if math.isnan(x.number):
            return Value(kind, width, 0)
        return Value(
            kind,
            width,
            max(low, min(high, int(x.number) if math.isfinite(x.number) else (low if x.number < 0 else high))),
        )

    return convert


def _least(a: Value, b: Value) -> Value:
    if math.isnan(a.number) or math.isnan(b.number):
        return b if math.isnan(a.number) else a
    if a.number == b.number == 0:
        return a if math.copysign(1, a.number) < 0 else b
    return a if a.number < b.number else b


def _most(a: Value, b: Value) -> Value:
    if math.isnan(a.number) or math.isnan(b.number):
        return b if math.isnan(a.number) else a
    if a.number == b.number == 0:
        return b if math.copysign(1, a.number) < 0 else a
    return a if a.number > b.number else b


def _fma(a: Value, b: Value, c: Value) -> Value:
    if all(math.isfinite(x.number) for x in (a, b, c)):
        exact = Fraction(a.number) * Fraction(b.number) + Fraction(c.number)
        if exact:
            return Value("f", a.width, rounded(exact, a.width))
    return Value("f", a.width, a.number * b.number + c.number)


def _unary(function: Callable[[float], float]) -> Callable[[Value], Value]:
    def run(x: Value) -> Value:
        with np.errstate(all="ignore"):
            return Value("f", x.width, float(_KINDS[x.width](function(np.float64(x.number)))))

    return run


def _float(width: int) -> Callable[[Value], Value]:
    return lambda x: Value("f", width, rounded(x.number, width) if x.number else x.number)


def _bf16(x: Value) -> Value:
    return Value("u", 16, int(np.array(x.number, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "fma": _fma, "isNAN": lambda x: Value("u", 1, int(math.isnan(x.number))), "abs": lambda x: Value(x.kind, x.width, abs(x.number)),
    "f32_to_f16": _float(16), "f16_to_f32": _float(32), "f32_to_f64": _float(64), "f64_to_f32": _float(32),
    "i32_to_f32": _float(32), "u32_to_f32": _float(32), "i32_to_f64": _float(64), "u32_to_f64": _float(64),
    "i16_to_f16": _float(16), "u16_to_f16": _float(16), "f32_to_bf16": _bf16,
    "f32_to_i32": _to_int(-(2**31), 2**31 - 1, 32, "i"), "f32_to_u32": _to_int(0, 2**32 - 1, 32, "u"),
    "f16_to_i16": _to_int(-(2**15), 2**15 - 1, 16, "i"), "f16_to_u16": _to_int(0, 2**16 - 1, 16, "u"),
    "i8_to_i32": lambda x: Value("i", 32, x.number), "u8_to_u32": lambda x: Value("u", 32, x.number),
    "i32_to_i16": lambda x: Value("i", 16, max(-(2**15), min(2**15 - 1, x.number))),
    "u32_to_u16": lambda x: Value("u", 16, min(2**16 - 1, x.number)),
    "signext": lambda x: Value("i", 64, x.as_type("i", x.width).number),
    "signext_from_bit": lambda x, n: Value("i", 32, read(x.bits & ((1 << n.number) - 1), "i", n.number).number if n.number else 0),
    "floor": _unary(np.floor), "ceil": _unary(np.ceil), "trunc": _unary(np.trunc), "sqrt": _unary(np.sqrt),
    "isEven": lambda x: Value("u", 1, int(x.number % 2 == 0)), "log2": _unary(np.log2), "pow": lambda a, b: _power(a, b),
    "ldexp": lambda x, n: Value("f", x.width, rounded(Fraction(x.number) * Fraction(2) ** n.number, x.width)),
    "u4_to_u32": lambda x: Value("u", 32, x.number), "v_min_f32": _least, "v_max_f32": _most, "v_min_f16": _least, "v_max_f16": _most,
    "v_min3_f32": lambda a, b, c: _least(_least(a, b), c), "v_max3_f32": lambda a, b, c: _most(_most(a, b), c),
    "v_min3_f16": lambda a, b, c: _least(_least(a, b), c), "v_max3_f16": lambda a, b, c: _most(_most(a, b), c),
}  # fmt: skip
for _kind, _of in (("i32", int), ("u32", int), ("i16", int), ("u16", int)):
    FUNCTIONS[f"v_min_{_kind}"] = lambda a, b: a if a.number < b.number else b
    FUNCTIONS[f"v_max_{_kind}"] = lambda a, b: a if a.number > b.number else b
    FUNCTIONS[f"v_max3_{_kind}"] = lambda a, b, c: max((a, b, c), key=lambda x: x.number)
    FUNCTIONS[f"v_min3_{_kind}"] = lambda a, b, c: min((a, b, c), key=lambda x: x.number)
for _name in ("min", "max", "min3", "max3"):  # RDNA 4's names
    for _kind in ("f16", "f32"):
        FUNCTIONS[f"v_{_name}_num_{_kind}"] = FUNCTIONS[f"v_{_name}_{_kind}"]


def _power(a: Value, b: Value) -> Value:
    with np.errstate(all="ignore"):
        width = a.width if a.kind == "f" else 32
        if b.kind == "i":
            return Value("f", 64, Fraction(a.number) ** b.number)
        return Value("f", width, float(_KINDS[width](np.float64(a.number) ** np.float64(b.number))))


def binary(op: str, a: Value, b: Value) -> Value:
    if op == "**":
        return _power(a, b)
    if op in ("==", "!=", "<>", "<", "<=", ">", ">="):
        x, y = a.number, b.number
        return Value(
            "u",
            1,
            int(
                {"==": x == y, "!=": x != y, "<>": x < y or x > y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[
                    op
                ]
            ),
        )
    if op in ("&&", "||"):
        return Value("u", 1, int(bool(a.number) and bool(b.number) if op == "&&" else bool(a.number) or bool(b.number)))
    if "f" in (a.kind, b.kind):
        width = min(a.width if a.kind == "f" else 64, b.width if b.kind == "f" else 64)
        x, y = a.number, b.number
        if isinstance(y, Fraction):  # a power of two
            return Value("f", width, rounded(Fraction(x) * y, width) if math.isfinite(x) and x else x)
        with np.errstate(all="ignore"):
            kind = _KINDS[width]
            number = {"+": kind(x) + kind(y), "-": kind(x) - kind(y), "*": kind(x) * kind(y), "/": kind(x) / kind(y)}[
                op
            ]
        return Value("f", width, float(number))
    width = a.width if op in ("<<", ">>") else max(a.width, b.width)
    x, y = int(a.number), int(b.number)
    number = {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y,
              "<<": x << y if op == "<<" else 0, ">>": x >> y if op == ">>" else 0,
              "/": x // y if op == "/" else 0, "%": x % y if op == "%" else 0}[op]  # fmt: skip
    return read(number, "i" if a.kind == "i" else "u", width)
