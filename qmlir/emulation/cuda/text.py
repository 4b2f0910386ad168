"""Parses PTX text as printed by LLVM's NVPTX back end, with inline assembly: nested scopes, ranges of registers,
vectors and addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from .instructions import (
    Guard,
    Immediate,
    Parameter,
    PtxAddress,
    PtxEntry,
    PtxError,
    PtxInstruction,
    PtxModule,
    PtxOperand,
    Register,
    Symbol,
    Variable,
    Vector,
    width_of,
)

_NAME = r"[A-Za-z_$%][\w$.]*"
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s.*?([\w$]+)\s*(?:\[\s*(\d+)\s*\])?$", re.DOTALL)
_VARIABLE = re.compile(
    r"\.(shared|global|const|local)\s+((?:\.\w+\s+(?:\d+\s+)?)*)\.(\w+)\s+([\w$]+)\s*((?:\[\s*\d*\s*\])*)\s*"
    r"(?:=\s*(\{.*\}|[^;]+))?$",
    re.DOTALL,
)
_REGISTERS = re.compile(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+(.+)$", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z]\w*)((?:[.:]+[\w:]+)*)\s*(.*)$", re.DOTALL)
_ADDRESS = re.compile(rf"({_NAME}|-?\w+)\s*(?:\+?\s*([-+]?\s*\w+))?$")
_IGNORED = re.compile(r"\.(loc|pragma|file|section)\b")


def parse(text: str) -> PtxModule:
    """Parse a PTX module.

    Raises:
        PtxError: text that is not understood; the message names the line if it is in the body of an entry.
    """
    text = _without_comments(text)
    target = re.search(r"\.target\s+([\w]+)", text)
    release = re.search(r"\.version\s+([\d.]+)", text)
    if target is None or release is None:
        raise PtxError("no .version and .target: this is not a PTX module")
    module = PtxModule(target.group(1), release.group(1))
    outside = text
    for match in reversed(list(_ENTRY.finditer(text))):
        end = _closing(text, match.end())
        entry = _entry(text, match, end)
        module.entries[entry.name] = entry
        outside = outside[: match.start()] + outside[end + 1 :]
    module.entries = dict(reversed(module.entries.items()))
    for statement in outside.split(";"):
        found = re.search(r"\.(?:shared|global|const)\s.*", statement, re.DOTALL)
        if found and (variable := _variable(found.group(0).strip())):
            module.variables[variable.name] = variable
    return module


def _without_comments(text: str) -> str:
    """The text without comments; line numbers do not change."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def _closing(text: str, start: int) -> int:
    """Index of the brace that closes the one opened before `start`."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxError("a body without its closing brace")


def _entry(text: str, match: re.Match[str], end: int) -> PtxEntry:
    name, parameters, attributes = match.groups()
    entry = PtxEntry(name, [_parameter(p) for p in parameters.split(",") if p.strip()], _block(attributes))
    entry.text = text[match.start() : end + 1]
    _Body(entry, text, match.end(), end).read()
    return entry


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.match(text.strip())
    if match is None:
        raise PtxError(f"unknown parameter: {text.strip()}")
    width = width_of(match.group(2)) // 8
    return Parameter(match.group(3), width * int(match.group(4) or 1), int(match.group(1) or width))


def _block(attributes: str) -> tuple[int, int, int] | None:
    match = re.search(r"\.(?:reqntid|maxntid)\s+([\d,\s]+)", attributes)
    if match is None:
        return None
    sizes = [int(s) for s in match.group(1).split(",") if s.strip()]
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _variable(statement: str) -> Variable | None:
    match = _VARIABLE.match(" ".join(statement.split()))
    if match is None:
        return None
    space, attributes, kind, name, sizes, data = match.groups()
    align = re.search(r"\.align\s+(\d+)", attributes)
    element = width_of(kind) // 8
    count = 1
    for size in re.findall(r"\[\s*(\d*)\s*\]", sizes):
        count *= int(size or 0)
    return Variable(name, space, int(align.group(1)) if align else element, element * count, _data(data, kind))


def _data(text: str | None, kind: str) -> bytes:
    if text is None:
        return b""
    values = [_number(v.strip()).value for v in text.strip("{} ").split(",") if v.strip()]
    size = width_of(kind) // 8
    return b"".join((v & ((1 << (8 * size)) - 1)).to_bytes(size, "little") for v in values)


@dataclass
class _Scope:
    number: int
    renamed: dict[str, str] = field(default_factory=dict)


class _Body:
    """Reads the body of an entry, statement by statement."""

    def __init__(self, entry: PtxEntry, text: str, start: int, end: int) -> None:
        self.entry, self.text, self.at, self.end = entry, text, start, end
        self.scopes = [_Scope(0)]
        self.made = 0
        self.labels: dict[str, int] = {}
        self.line = text.count("\n", 0, start) + 1
        self.counted = start

    def read(self) -> None:
        for line, statement in self._statements():
            try:
                self._statement(statement, line)
            except PtxError as e:
                raise PtxError(f"line {line}: {e}: {' '.join(statement.split())}") from None
        for instruction in self.entry.instructions:
            if instruction.opcode == "bra":
                label = instruction.operands[0]
                if not isinstance(label, Symbol) or label.name not in self.labels:
                    raise PtxError(f"line {instruction.line}: no label for: {instruction.text}")
                instruction.target = self.labels[label.name]

    def _statements(self) -> Iterator[tuple[int, str]]:
        space = re.compile(r"\s*")
        while True:
            start = space.match(self.text, self.at, self.end)
            self.at = start.end() if start else self.at
            if self.at >= self.end:
                return
            self.line += self.text.count("\n", self.counted, self.at)
            self.counted = self.at
            label = _LABEL.match(self.text, self.at, self.end)
            if self.text[self.at] == "{":
                self.at += 1
                self._open()
            elif self.text[self.at] == "}":
                self.scopes.pop()
                self.at += 1
            elif label:
                self.labels[self._renamed(label.group(1))] = len(self.entry.instructions)
                self.at = label.end()
            else:
                end = self.text.find(";", self.at, self.end)
                if self.text.startswith((".loc\t", ".loc ", ".file\t"), self.at):  # these end with their line
                    end = self.text.find("\n", self.at, self.end)
                end = self.end if end < 0 else end
                statement, self.at = self.text[self.at : end].strip(), end + 1
                if statement:
                    yield self.line, statement

    def _open(self) -> None:
        """Open a scope with its own labels."""
        self.made += 1
        scope = _Scope(self.made)
        inside = self.text[self.at : _closing(self.text, self.at)]
        for name in re.findall(r"(?:^|[;{}\s])([A-Za-z_$%][\w$]*)\s*:(?!:)", inside):
            scope.renamed[name] = f"{name}@{scope.number}"
        self.scopes.append(scope)

    def _renamed(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.renamed:
                return scope.renamed[name]
        return name

    def _statement(self, statement: str, line: int) -> None:
        if _IGNORED.match(statement):
            return
        if match := _REGISTERS.match(statement):
            self._declare(match.group(1), match.group(2))
            return
        if statement.startswith("."):
            variable = _variable(statement)
            if variable is None:
                raise PtxError("unknown directive")
            self.entry.variables[variable.name] = variable
            return
        match = _INSTRUCTION.match(statement)
        if match is None:
            raise PtxError("no instruction")
        negated, predicate, opcode, modifiers, operands = match.groups()
        guard = Guard(self._renamed(predicate), negated == "!") if predicate else None
        parts = tuple(m for m in re.split(r"\.|(?=::)", modifiers) if m)
        self.entry.instructions.append(
            PtxInstruction(opcode, parts, tuple(self._operands(operands)), guard, line, " ".join(statement.split()))
        )

    def _declare(self, kind: str, names: str) -> None:
        scope = self.scopes[-1]
        for name in re.split(r"\s*,\s*", names.strip()):
            ranged = re.fullmatch(r"([%\w$]+)<(\d+)>", name)
            all_names = [f"{ranged.group(1)}{i}" for i in range(int(ranged.group(2)))] if ranged else [name]
            for one in all_names:
                own = one if scope.number == 0 else f"{one}@{scope.number}"
                scope.renamed[one] = own
                self.entry.registers[own] = width_of(kind)

    def _operands(self, text: str) -> Iterator[PtxOperand]:
        for part in _split(text):
            yield from self._operand(part)

    def _operand(self, text: str) -> Iterator[PtxOperand]:
        if text.startswith("{"):
            yield Vector(tuple(self._vector_item(v.strip()) for v in text.strip("{} \n\t").split(",") if v.strip()))
        elif text.startswith("["):
            yield self._address(text.strip("[]").strip())
        elif "|" in text:  # `d|p` of setp and shfl
            for part in text.split("|"):
                yield self._plain(part.strip())
        else:
            yield self._plain(text)

    def _vector_item(self, text: str) -> Register | Immediate:
        item = self._plain(text)
        if not isinstance(item, Register | Immediate):
            raise PtxError(f"{text} in a vector")
        return item

    def _address(self, text: str) -> PtxAddress:
        match = _ADDRESS.match(text)
        if match is None:
            raise PtxError(f"unknown address [{text}]")
        base = self._plain(match.group(1))
        offset = _number(match.group(2).replace(" ", "").lstrip("+")).value if match.group(2) else 0
        if isinstance(base, PtxAddress | Vector):
            raise PtxError(f"unknown address [{text}]")
        return PtxAddress(base, offset)

    def _plain(self, text: str) -> Register | Immediate | Symbol:
        if re.match(r"-?\d", text):
            return _number(text)
        renamed = self._renamed(text)
        if text.startswith("%") or text == "_" or renamed in self.entry.registers:
            return Register(renamed)
        if text.startswith("!"):
            raise PtxError(f"unknown operand {text}")
        return Symbol(renamed)


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _number(text: str) -> Immediate:
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("-")
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", body):
        return Immediate(int(body[2:], 16) ^ (1 << 31 if sign < 0 else 0), 32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", body):
        return Immediate(int(body[2:], 16) ^ (1 << 63 if sign < 0 else 0), 64)
    if re.fullmatch(r"\d+\.\d*([eE][-+]?\d+)?", body):
        return Immediate(struct.unpack("<Q", struct.pack("<d", sign * float(body)))[0], 64)
    try:
        return Immediate(sign * int(body.rstrip("uU"), 0))
    except ValueError:
        raise PtxError(f"unknown number {text}") from None
