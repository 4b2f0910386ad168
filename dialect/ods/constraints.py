"""Constraints on the types of operands and results, and the kinds of attributes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, SupportsIndex, TypeVar

import numpy as np

from ...core.mlir import ir
from ...core.spelling import did_you_mean


class OpError(Exception):
    """A violated rule; the message names the operand or attribute."""


def fail(message: str) -> NoReturn:
    """Raise OpError: for the bodies of verifiers."""
    raise OpError(message)


@dataclass(frozen=True)
class Constraint:
    """A condition on the type of an operand or result. `irdl` is the closest constraint that IRDL can express."""

    description: str
    irdl: str
    check: Callable[[ir.Type], bool]


def tensor_of(description: str, element: Callable[[ir.Type], bool]) -> Constraint:
    """A ranked tensor whose element type satisfies `element`."""
    return Constraint(
        f"a ranked tensor of {description}",
        'irdl.base "!builtin.tensor"',
        lambda t: isinstance(t, ir.RankedTensorType) and element(t.element_type),
    )


def _is_float(t: ir.Type) -> bool:
    return isinstance(t, ir.FloatType)


def _signless(*widths: int) -> Callable[[ir.Type], bool]:
    return lambda t: isinstance(t, ir.IntegerType) and t.is_signless and t.width in widths


ANY = tensor_of("i8 codes or floats", lambda t: _signless(8)(t) or _is_float(t))
CODE = tensor_of("i8 codes (or bytes that hold packed codes)", _signless(8))
FLOAT = tensor_of("floats", _is_float)
INT = tensor_of("i8 or i32 integers", _signless(8, 32))
ZERO = tensor_of("i8 or i32 integers, or floats", lambda t: _signless(8, 32)(t) or _is_float(t))
NUMBER = tensor_of("i32 integers or floats", lambda t: _signless(32)(t) or _is_float(t))
INDEX = tensor_of("i32 or i64 integers", _signless(32, 64))
SPARSE_INDEX = tensor_of("i32 or i64 integers (2:4: i8 bytes)", _signless(8, 32, 64))
RESULT = tensor_of("i8, i32 or floats", lambda t: _signless(8, 32)(t) or _is_float(t))


T = TypeVar("T", covariant=True)


class AttrKind(Generic[T]):
    """How an attribute is checked, read and built. Its value is a `T`."""

    description: str
    irdl: str
    python: str  # Python type of the value

    def read(self, attribute: ir.Attribute) -> T:
        """The Python value of an attribute. Raises OpError if it is of another kind."""
        raise NotImplementedError

    def of(self, value: object) -> T:
        """Convert a value to the kind's Python type. Raises OpError if it is of another kind: nothing is truncated."""
        raise NotImplementedError

    def build(self, value: object) -> ir.Attribute:
        """The attribute for a value. Raises OpError as `of` does."""
        raise NotImplementedError


class Enum(AttrKind[str]):
    irdl, python = 'irdl.base "#builtin.string"', "str"

    def __init__(self, values: Sequence[str]) -> None:
        self.values = tuple(values)
        self.description = "one of " + ", ".join(repr(v) for v in values)

    def read(self, attribute: ir.Attribute) -> str:
        if not isinstance(attribute, ir.StringAttr):
            raise OpError(f"must be {self.description}, but got {attribute}")
        if attribute.value not in self.values:
            raise OpError(f"is {attribute.value!r}, which is not known{did_you_mean(attribute.value, self.values)}")
        return str(attribute.value)

    def of(self, value: object) -> str:
        if value not in self.values:
            raise OpError(f"is not known{did_you_mean(str(value), self.values)}")
        return str(value)

    def build(self, value: object) -> ir.Attribute:
        return ir.StringAttr.get(self.of(value))


def _bool(value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)) and not (isinstance(value, int) and value in (0, 1)):
        raise TypeError
    return bool(value)


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, SupportsIndex)):
        raise TypeError
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise TypeError
    return number


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or np.iscomplexobj(value):
        raise TypeError
    return float(value)


class _Scalar(AttrKind[T]):
    """A scalar attribute. `kind` is the name of its class in `ir`; `checked` converts a value or raises TypeError."""

    def __init__(
        self, description: str, python: str, irdl: str, kind: str, checked: Callable[[object], T],
        build: Callable[[T], ir.Attribute],
    ) -> None:  # fmt: skip
        self.description, self.python, self.irdl, self._kind = description, python, irdl, kind
        self._checked, self._build = checked, build

    def of(self, value: object) -> T:
        try:
            return self._checked(value)
        except (TypeError, OverflowError):
            raise OpError(f"must be {self.description}") from None

    def read(self, attribute: ir.Attribute) -> T:
        if not isinstance(attribute, getattr(ir, self._kind)):
            raise OpError(f"must be {self.description}, but got {attribute}")
        value: T = attribute.value
        return value

    def build(self, value: object) -> ir.Attribute:
        return self._build(self.of(value))


BOOL: AttrKind[bool] = _Scalar(
    "a bool", "bool", 'irdl.base "#builtin.integer"', "BoolAttr", _bool, lambda v: ir.BoolAttr.get(v)
)
I64: AttrKind[int] = _Scalar(
    "an integer",
    "int",
    'irdl.base "#builtin.integer"',
    "IntegerAttr",
    _int,
    lambda v: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), v),
)
F32: AttrKind[float] = _Scalar(
    "a float",
    "float",
    'irdl.base "#builtin.float"',
    "FloatAttr",
    _float,
    lambda v: ir.FloatAttr.get(ir.F32Type.get(), v),
)


class _Array(AttrKind[tuple[T, ...]]):
    irdl = 'irdl.base "#builtin.dense_array"'

    def __init__(self, length: int, what: str, python: str, kind: str, element: Callable[[object], T]) -> None:
        self.length, self.python, self._kind, self._element = length, f"tuple[{python}, ...]", kind, element
        self.description = f"an array of {length} {what}"

    def read(self, attribute: ir.Attribute) -> tuple[T, ...]:
        if not isinstance(attribute, getattr(ir, self._kind)) or len(attribute) != self.length:
            raise OpError(f"must be {self.description}, but got {attribute}")
        return tuple(attribute)

    def of(self, value: object) -> tuple[T, ...]:
        try:
            found = tuple(self._element(v) for v in value) if isinstance(value, Iterable) else ()
        except (TypeError, OverflowError):
            found = ()
        if len(found) != self.length:
            raise OpError(f"must be {self.description}")
        return found

    def build(self, value: object) -> ir.Attribute:
        made: ir.Attribute = getattr(ir, self._kind).get(list(self.of(value)))
        return made


def I64s(length: int) -> AttrKind[tuple[int, ...]]:
    """`array<i64: ...>` of `length` integers."""
    return _Array(length, "i64 integers", "int", "DenseI64ArrayAttr", _int)


def F64s(length: int) -> AttrKind[tuple[float, ...]]:
    """`array<f64: ...>` of `length` floats."""
    return _Array(length, "f64 floats", "float", "DenseF64ArrayAttr", _float)
