"""A PTX program as data: modules, entries, instructions and their operands. Source: NVIDIA's "Parallel Thread Execution
ISA"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..launch import EmulationError


class PtxError(EmulationError):
    """The text is not PTX that this parser understands, or a kernel did something illegal."""


@dataclass(frozen=True)
class Register:
    """A virtual register, or a special one such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A constant: an integer, or the bits of a float literal (`bits` is its width; 0 for integers)."""

    value: int
    bits: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, a parameter or a label."""

    name: str


@dataclass(frozen=True)
class PtxAddress:
    """`[base + offset]`."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple[Register | Immediate, ...]


PtxOperand = Register | Immediate | Symbol | PtxAddress | Vector


@dataclass(frozen=True)
class Guard:
    """`@%p` or `@!%p`."""

    register: str
    negated: bool


@dataclass(eq=False)
class PtxInstruction:
    """`@guard opcode.modifier.modifier operands;`

    Attributes:
        line: line number in the text of the module, from 1.
        registers: every register that an operand names.
        sources: registers that it reads, except its guard and the accumulators of a `wgmma`.
        kind: kind by which it is counted, see `Counts`.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[PtxOperand, ...]
    guard: Guard | None
    line: int
    text: str
    registers: frozenset[str] = field(init=False)
    sources: tuple[str, ...] = field(init=False)
    kind: str = field(init=False)
    target: int = -1  # of a branch: index into the entry's instructions

    def __post_init__(self) -> None:
        self.registers = frozenset(_registers(self.operands))
        without = self.opcode in _WITHOUT_RESULT or (
            self.opcode == "mbarrier" and isinstance(self.operands[0], PtxAddress)
        )
        results = 0 if without else 1 + ("|" in self.text.partition(",")[0])
        if self.opcode == "wgmma" and "mma_async" in self.modifiers:
            results = 1
        self.sources = tuple(dict.fromkeys(_registers(self.operands[results:])))
        self.kind = _kind(self.opcode, self.modifiers)

    @property
    def type(self) -> str:
        """The last modifier, which is the type of the operands in most instructions."""
        return self.modifiers[-1]

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers


@dataclass(frozen=True)
class Variable:
    """A variable of the module or of an entry.

    Attributes:
        space: `shared`, `global`, `const` or `local`.
        size: bytes, 0 for `[]`.
        data: initial bytes; empty without an initialiser.
    """

    name: str
    space: str
    align: int
    size: int
    data: bytes


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry, `size` bytes at a multiple of `align`."""

    name: str
    size: int
    align: int


@dataclass
class PtxEntry:
    """A kernel.

    Attributes:
        registers: the width of every register in bits; 1 is a predicate.
        block: threads that a block must have (`.reqntid`) or may at most have (`.maxntid`); None if it states neither.
    """

    name: str
    parameters: list[Parameter]
    block: tuple[int, int, int] | None
    instructions: list[PtxInstruction] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    text: str = ""


@dataclass
class PtxModule:
    """One PTX file."""

    target: str
    version: str
    entries: dict[str, PtxEntry] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The architecture that it is compiled for: (9, 0) for `.target sm_90a`."""
        number = int("".join(c for c in self.target if c.isdigit()))
        return number // 10, number % 10


_WITHOUT_RESULT = frozenset(
    ("st", "red", "bar", "barrier", "bra", "ret", "exit", "cp", "fence", "membar", "stmatrix", "prefetch", "prefetchu",
     "discard", "applypriority", "nanosleep", "trap", "brkpt", "griddepcontrol", "setmaxnreg", "pmevent", "nop",
     "wgmma")
)  # fmt: skip


_KINDS = {
    "mma": "matrix", "wgmma": "matrix", "ldmatrix": "shared", "stmatrix": "shared", "bra": "branch", "ret": "branch",
    "exit": "branch", "bar": "wait", "barrier": "wait", "mbarrier": "wait", "fence": "wait", "membar": "wait",
    "nanosleep": "wait", "cp": "memory", "prefetch": "memory", "prefetchu": "memory",
}  # fmt: skip


def _kind(opcode: str, modifiers: tuple[str, ...]) -> str:
    if opcode in ("ld", "ldu", "st", "atom", "red"):
        return "shared" if "shared" in modifiers else "scalar" if "param" in modifiers else "memory"
    if opcode in ("wgmma", "cp") and any(m in modifiers for m in ("fence", "commit_group", "wait_group", "wait_all")):
        return "wait"
    return _KINDS.get(opcode, "vector")


_WIDTHS = {"pred": 1, "e4m3x2": 16, "e5m2x2": 16}


def width_of(kind: str) -> int:
    """Bits of a fundamental type: `b32` 32, `f16x2` 32, `pred` 1."""
    if kind in _WIDTHS:
        return _WIDTHS[kind]
    match = re.fullmatch(r"[a-z]+(\d+)(?:x(\d))?", kind)
    if match is None:
        raise PtxError(f"unknown type .{kind}")
    return int(match.group(1)) * int(match.group(2) or 1)


def _registers(operands: tuple[PtxOperand, ...]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Vector):
            yield from _registers(operand.items)
        elif isinstance(operand, PtxAddress):
            yield from _registers((operand.base,))
