"""AMD's pseudocode of an instruction, evaluated for one lane, to judge the results of the emulator.

The text is that of the instruction set guides, from tinygrad's tables. A value is a type ("u", "i", "f", "b"), a width
in bits and a number; variables are stored as bits.
"""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np

from .pcode_values import FUNCTIONS, Break, Unknown, Value, binary, read, rounded

_TOKEN = re.compile(
    r"\s*(?:(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+)(?:U|I|F)?(?![A-Za-z]))|(?P<cast>\d+'[UIFB](?=\())"
    r"|(?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?|\d+\.\d+F?|\d+(?:ULL|LL|U|L|F)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<|>>|&&|\|\||==|!=|<>|<=|>=|\+=|-=|[-+*/%&|^~!<>=?:()\[\]{},.]))"
)
_PRECEDENCE = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"],
               ["*", "/", "%"], ["**"]]  # fmt: skip
_QUIET = {16: 1 << 9, 32: 1 << 22, 64: 1 << 51}  # the bit that makes a NaN quiet, set when one is assigned to a float


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
                end = self._block(lines, at + 1, True)
                for i in range(int(match[2]), int(match[3]) + 1 if not skip else 0):
                    self.bits[match[1]], self.types[match[1]] = i, ("i", 32)
                    try:
                        self._block(lines, at + 1)
                    except Break:
                        break
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
        if line == "break":
            raise Break
        match = re.match(r"(.*?)\s*(\+=|-=|(?<![=<>!])=(?!=))\s*(.*)$", line)
        if match is None or "lambda" in line:
            raise Unknown(line)
        target, op, expression = match.groups()
        value = self.value(expression)
        if op != "=":
            value = binary(op[0], self.value(target), value)
        self._assign(target, value)

    def _assign(self, target: str, value: Value) -> None:
        match = re.fullmatch(r"(\w+)(?:\.(\w)(\d+))?(?:\[(.*)\])?(?:\.(\w+?)(\d+))?", target)
        if match is None:
            raise Unknown(target)
        name, kind, width, part, part_kind, part_width = match.groups()
        bits = value.bits if value.kind == "f" or value.number >= 0 else value.number & ((1 << 64) - 1)
        if part_kind == "f" or kind == "f":
            wanted = int(part_width if part_kind else width)
            if value.kind == "f":
                kept = value if value.width == wanted else Value("f", wanted, float(value.number))
                bits = kept.bits | (_QUIET[wanted] if math.isnan(kept.number) else 0)
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
            found = binary(op, found, self._level(level + 1))
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
            if text not in FUNCTIONS:
                raise Unknown(text)
            self._take()
            arguments = []
            while self._peek() != ")":
                arguments.append(self._ternary())
                if self._peek() == ",":
                    self._take()
            self._take(")")
            return FUNCTIONS[text](*arguments)
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
