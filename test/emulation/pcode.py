"""AMD's pseudocode of an instruction, evaluated for one lane: the judge of what the emulator computes.

The text is that of the instruction set guides, as tinygrad's tables hold it. Values are a type ("u", "i", "f", "b"), a
width in bits and a number; bits are kept of what is assigned.
"""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

_TOKEN = re.compile(
    r"\s*(?:(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+)(?:U|I|F)?(?![A-Za-z]))|(?P<cast>\d+'[UIFB](?=\())"
    r"|(?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?|\d+\.\d+F?|\d+(?:ULL|LL|U|L|F)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<|>>|&&|\|\||==|!=|<>|<=|>=|\+=|-=|[-+*/%&|^~!<>=?:()\[\]{},.]))"
)
_PRECEDENCE = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"],
               ["*", "/", "%"], ["**"]]  # fmt: skip
_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_KINDS = {16: np.float16, 32: np.float32, 64: np.float64}


class Unknown(Exception):
    """Pseudocode that this does not read."""


@dataclass(frozen=True)
class Value:
    kind: str
    width: int
    number: Any

    @property
    def bits(self) -> int:
        if self.kind == "f":
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
        return Value("f", width, struct.unpack(_FORMATS[width], bits.to_bytes(width // 8, "little"))[0])
    if kind == "i" and bits >> (width - 1):
        bits -= 1 << width
    return Value("u" if kind == "b" else kind, width, bits)


def rounded(exact: Fraction | float, width: int) -> float:
    """To nearest even."""
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


_FUNCTIONS: dict[str, Callable[..., Value]] = {
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
    _FUNCTIONS[f"v_min_{_kind}"] = lambda a, b: a if a.number < b.number else b
    _FUNCTIONS[f"v_max_{_kind}"] = lambda a, b: a if a.number > b.number else b
    _FUNCTIONS[f"v_max3_{_kind}"] = lambda a, b, c: max((a, b, c), key=lambda x: x.number)
    _FUNCTIONS[f"v_min3_{_kind}"] = lambda a, b, c: min((a, b, c), key=lambda x: x.number)


def _power(a: Value, b: Value) -> Value:
    with np.errstate(all="ignore"):
        width = a.width if a.kind == "f" else 32
        if b.kind == "i":
            return Value("f", 64, Fraction(a.number) ** b.number)
        return Value("f", width, float(_KINDS[width](np.float64(a.number) ** np.float64(b.number))))


def _binary(op: str, a: Value, b: Value) -> Value:
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


class Lane:
    """Evaluates pseudocode with the operands of one lane."""

    def __init__(self, **operands: int) -> None:
        self.bits: dict[str, int] = dict(operands)
        self.types: dict[str, tuple[str, int]] = {}

    def run(self, text: str) -> Lane:
        lines = [line.split("//")[0].strip().rstrip(";") for line in text.split("\n")]
        self._block([line for line in lines if line and not line.startswith("//")], 0)
        return self

    # ---- statements

    def _block(self, lines: list[str], at: int, skip: bool = False) -> int:
        """Executes to the end of a block and returns where it ends."""
        while at < len(lines):
            line = lines[at]
            if re.match(r"(elsif|else|endif|endfor)\b", line):
                return at
            if line.startswith("if "):
                at = self._if(lines, at, skip)
            elif match := re.match(r"for (\w+) in (\d+) : (\d+) do", line):
                end = at + 1
                for i in range(int(match[2]), int(match[3]) + 1):
                    self.bits[match[1]], self.types[match[1]] = i, ("i", 32)
                    end = self._block(lines, at + 1, skip)
                at = end + 1
            else:
                if not skip:
                    self._statement(line)
                at += 1
        return at

    def _if(self, lines: list[str], at: int, skip: bool) -> int:
        done = skip
        while True:
            line = lines[at]
            if line.startswith("endif"):
                return at + 1
            condition = re.fullmatch(r"(?:if|elsif) (.*) then", line)
            take = not done and (condition is None or bool(self.value(condition[1]).number))
            at = self._block(lines, at + 1, not take)
            done = done or take

    def _statement(self, line: str) -> None:
        if match := re.fullmatch(r"declare (\w+) : (\d+)'(\w)(?:\[\d+\])?", line):
            self.bits[match[1]] = 0
            self.types[match[1]] = (match[3].lower(), int(match[2]))
            return
        match = re.match(r"(.*?)\s*(\+=|-=|(?<![=<>!])=(?!=))\s*(.*)$", line)
        if match is None or "lambda" in line:
            raise Unknown(line)
        target, op, expression = match.groups()
        value = self.value(expression)
        if op != "=":
            value = _binary(op[0], self.value(target), value)
        self._assign(target, value)

    def _assign(self, target: str, value: Value) -> None:
        match = re.fullmatch(r"(\w+)(?:\.(\w)(\d+))?(?:\[(.*)\])?(?:\.(\w+?)(\d+))?", target)
        if match is None:
            raise Unknown(target)
        name, kind, width, part, part_kind, part_width = match.groups()
        bits = value.bits if value.kind == "f" or value.number >= 0 else value.number & ((1 << 64) - 1)
        if part_kind == "f" or kind == "f":
            wanted = int(part_width if part_kind else width)
            bits = Value("f", wanted, float(value.number)).bits if value.kind == "f" else bits
        if part is None:
            if width is not None:
                self.bits[name] = bits & ((1 << int(width)) - 1)
                self.types[name] = (kind, int(width))
            else:
                self.bits[name] = bits
                self.types[name] = (value.kind, value.width)
            return
        if ":" not in part:
            raise Unknown(target)
        high, low = (int(self.value(x).number) for x in part.split(":"))
        mask = ((1 << (high - low + 1)) - 1) << low
        self.bits[name] = self.bits.get(name, 0) & ~mask | bits << low & mask
        if name not in self.types:
            self.types[name] = ("b", 64)

    # ---- expressions

    def value(self, text: str) -> Value:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise Unknown(text[at:])
            self.tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()
        saved, found = self.tokens, self._ternary()
        if saved and self.tokens:
            raise Unknown(text)
        return found

    def _peek(self) -> str:
        return self.tokens[0][1] if self.tokens else ""

    def _take(self, wanted: str | None = None) -> str:
        if not self.tokens or (wanted is not None and self._peek() != wanted):
            raise Unknown(f"{wanted} before {self._peek()}")
        return self.tokens.pop(0)[1]

    def _ternary(self) -> Value:
        condition = self._level(0)
        if self._peek() != "?":
            return condition
        self._take()
        yes = self._ternary()
        self._take(":")
        no = self._ternary()
        return yes if condition.number else no

    def _level(self, level: int) -> Value:
        if level == len(_PRECEDENCE):
            return self._prefix()
        found = self._level(level + 1)
        while self._peek() in _PRECEDENCE[level]:
            op = self._take()
            found = _binary(op, found, self._level(level + 1))
        return found

    def _prefix(self) -> Value:
        if self._peek() in ("-", "+", "~", "!"):
            op = self._take()
            x = self._prefix()
            if op == "-":
                return Value("f", x.width, -x.number) if x.kind == "f" else read(-x.number, "i", x.width)
            if op == "~":
                return read(~x.number, x.kind, x.width)
            return Value("u", 1, int(not x.number)) if op == "!" else x
        return self._postfix(self._primary())

    def _primary(self) -> Value:
        if not self.tokens:
            raise Unknown("end")
        group, text = self.tokens[0]
        if group == "number":
            self._take()
            digits = text.rstrip("ULF") if not text.startswith("0x") else text.rstrip("UL")
            if "." in digits or (text.endswith("F") and not text.startswith("0x")):
                return Value("f", 32 if text.endswith("F") else 64, float(digits))
            return Value("u" if "U" in text else "i", 64 if "LL" in text else 32, int(digits, 0))
        if group == "sized":
            self._take()
            width, digits = text.split("'")
            return Value("u", int(width), int(digits.rstrip("UIF"), 0))
        if group == "cast":
            self._take()
            width, kind = text.split("'")
            self._take("(")
            x = self._ternary()
            self._take(")")
            if kind == "F":
                return (
                    Value("f", int(width), rounded(x.number, int(width)) if x.number else float(x.number))
                    if x.kind == "f"
                    else read(x.bits, "f", int(width))
                )
            return read(int(x.number), {"U": "u", "I": "i", "B": "u"}[kind], int(width))
        if text == "(":
            self._take()
            x = self._ternary()
            self._take(")")
            return x
        if text == "{":
            self._take()
            parts = [self._ternary()]
            while self._peek() == ",":
                self._take()
                parts.append(self._ternary())
            self._take("}")
            bits = 0
            for part in parts:
                bits = bits << part.width | part.bits
            return Value("u", sum(p.width for p in parts), bits)
        self._take()
        if self._peek() == "(":
            if text not in _FUNCTIONS:
                raise Unknown(text)
            self._take()
            arguments = []
            while self._peek() != ")":
                arguments.append(self._ternary())
                if self._peek() == ",":
                    self._take()
            self._take(")")
            return _FUNCTIONS[text](*arguments)
        if text not in self.bits:
            raise Unknown(text)
        kind, width = self.types.get(text, ("b", 64))
        return (
            read(self.bits[text], kind, width)
            if kind != "b"
            else Value("u", width, self.bits[text] & ((1 << width) - 1))
        )

    def _postfix(self, x: Value) -> Value:
        while self._peek() in (".", "["):
            if self._take() == ".":
                kind, width = re.fullmatch(r"(\w+?)(\d+)", self._take()).groups()  # type: ignore[union-attr]
                if kind == "bf":
                    x = Value("f", 32, float(np.array(x.bits & 65535, np.uint16).view(ml_dtypes.bfloat16)))
                else:
                    x = x.as_type(kind, int(width))
                continue
            high = self._ternary()
            low = high
            if self._peek() == ":":
                self._take()
                low = self._ternary()
            self._take("]")
            if high.number < low.number:  # reversed bits
                width = low.number - high.number + 1
                bits = int(f"{x.bits >> high.number & ((1 << width) - 1):0{width}b}"[::-1], 2)
            else:
                width = high.number - low.number + 1
                bits = x.bits >> low.number & ((1 << width) - 1)
            x = Value("u", width, bits)
        return x
