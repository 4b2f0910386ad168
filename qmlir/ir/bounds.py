"""Intervals that contain the integers of a program, whatever the values of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import ir
from ..dialect.ops.common import shape_of
from .affine import indexing_maps, loop_sizes
from .attributes import axis_of
from .walk import BARRIERS, VIEWS, argument_number, made_by, producer, terminator_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

Bound: TypeAlias = "int | Fraction"  # a fraction for floats only
Interval: TypeAlias = "tuple[Bound, Bound]"  # the least and the most


class Bounds:
    """Intervals of integers and of the elements of tensors of integers."""

    def __init__(self) -> None:
        self._tensors: dict[ir.Value, Interval] = {}

    def of_tensor(self, value: ir.Value) -> Interval:
        if value not in self._tensors:
            every = _every(value.type.element_type)
            self._tensors[value] = every  # for a tensor that depends on itself
            self._tensors[value] = _within(self._elements(value), every)
        return self._tensors[value]

    def of_scalar(self, value: ir.Value, body: OpLike | None) -> Interval:
        """The interval of an integer in the body of a generic, or outside of one."""
        every = _every(value.type)
        return _within(self._number(value, body) or every, every)

    def _elements(self, value: ir.Value) -> Interval:
        op = producer(value)
        every = _every(value.type.element_type)
        if op is None:
            return every
        number = list(op.results).index(value)
        if op.name == "arith.constant":
            return _of_constant(op.attributes["value"]) or every
        if op.name in _PARTS:
            return self.of_tensor(op.operands[0])
        if op.name == "tensor.concat":
            return _hull(*map(self.of_tensor, op.operands))
        if op.name == "linalg.fill":
            return self.of_scalar(op.operands[0], None)
        if op.name == "linalg.generic":
            return self.of_scalar(terminator_of(op.regions[0].blocks[0]).operands[number], op)
        if op.name == "iree_linalg_ext.sort":  # in place
            return self.of_tensor(op.operands[number])
        if op.name == "iree_linalg_ext.scatter":
            body = op.regions[0].blocks[0]
            if terminator_of(body).operands[0] != body.arguments[0]:
                return every
            updates, _, before = op.operands
            # Of a fresh destination only the updates are read: other elements have no value.
            fresh = made_by(before, "tensor.empty") is not None
            return self.of_tensor(updates) if fresh else _hull(self.of_tensor(updates), self.of_tensor(before))
        if op.name == "iree_linalg_ext.scan" and number == 0:
            return self._sums(op) or every
        return every

    def _sums(self, scan: OpLike) -> Interval | None:
        """The interval of the running sums along an axis."""
        combined = scan.regions[0].blocks[0].operations[0].operation
        size = shape_of(scan.operands[0])[axis_of(scan)]
        if combined.name != "arith.addi" or size is None:
            return None
        low, high = self.of_tensor(scan.operands[0])
        return min(low, 0) * size, max(high, 0) * size

    def _number(self, value: ir.Value, body: OpLike | None) -> Interval | None:
        op = producer(value)
        if op is None:
            number = argument_number(value, body)
            return None if body is None or number is None else self._argument(body, number)
        name = op.name.removeprefix("arith.")
        if name == "constant":
            attribute = op.attributes["value"]
            if isinstance(attribute, ir.FloatAttr) and attribute.value.is_integer():
                return int(attribute.value), int(attribute.value)
            if not isinstance(attribute, ir.IntegerAttr):
                return None
            whole = abs(attribute.value) if _is_bit(value.type) else attribute.value
            return whole, whole
        if op.name == "linalg.index" and body is not None:
            size = loop_sizes(body.operands, indexing_maps(body)).get(ir.IntegerAttr(op.attributes["dim"]).value)
            return None if size is None else (0, max(size - 1, 0))
        if op.name == "tensor.extract":
            return self.of_tensor(op.operands[0])
        if name == "select":
            return _hull(*(self.of_scalar(v, body) for v in list(op.operands)[1:]))
        if name not in _RULES:
            return None
        return _RULES[name](*(self.of_scalar(v, body) for v in op.operands))

    def _argument(self, generic: OpLike, number: int) -> Interval | None:
        """The interval of an argument of a generic's body. That of an accumulator is its initial value's, and is known
        only if the body does no more than choose between the accumulator and other values."""
        argument = generic.regions[0].blocks[0].arguments[number]
        running = number >= len(generic.operands) - len(generic.results)
        if running and not all(use.owner.operation.name in _CHOICES for use in argument.uses):
            return None
        return self.of_tensor(generic.operands[number])


_FAR = 1 << 1100  # beyond any float


def _is_bit(kind: ir.Type) -> bool:
    return isinstance(kind, ir.IntegerType) and kind.width == 1


def _every(kind: ir.Type) -> Interval:
    """The interval of all values of a type."""
    if isinstance(kind, ir.FloatType):
        return -_FAR, _FAR
    if _is_bit(kind):
        return 0, 1
    width = kind.width if isinstance(kind, ir.IntegerType) else 64
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def _within(found: Interval, every: Interval) -> Interval:
    """`found`, or `every` value of the type if `found` goes beyond it and may wrap around."""
    return found if every[0] <= found[0] and found[1] <= every[1] else every


def _of_constant(attribute: ir.Attribute) -> Interval | None:
    if not isinstance(attribute, ir.DenseIntElementsAttr):
        return None
    bit = _is_bit(ir.ShapedType(attribute.type).element_type)
    numbers = [int(attribute[0])] if attribute.is_splat else [int(x) for x in attribute]
    numbers = list(map(abs, numbers)) if bit else numbers
    return (min(numbers), max(numbers)) if numbers else None


def _hull(*intervals: Interval) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def _corners(function: Callable[[Bound, Bound], Bound]) -> Callable[[Interval, Interval], Interval]:
    """A rule for a function that is monotonic in each of its two arguments."""

    def interval(a: Interval, b: Interval) -> Interval:
        found = [function(x, y) for x in a for y in b]
        return min(found), max(found)

    return interval


def _remainder(a: Interval, b: Interval) -> Interval | None:
    """For a positive divisor; the sign is that of the dividend."""
    if b[0] <= 0:
        return None
    return (0 if a[0] >= 0 else 1 - b[1]), min(b[1] - 1, max(a[1], 0))


def _quotient(a: Interval, b: Interval) -> Interval | None:
    """For a non-negative dividend and a positive divisor."""
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _unsigned(function: Callable[[Interval, Interval], Interval | None]) -> Callable[..., Interval | None]:
    """A rule for unsigned operands, which holds if their signed values are not negative."""
    return lambda a, b: function(a, b) if a[0] >= 0 and b[0] >= 0 else None


def _floats_quotient(a: Interval, b: Interval) -> Interval | None:
    """For floats: a non-negative dividend and a positive divisor."""
    return (Fraction(a[0], b[1]), Fraction(a[1], b[0])) if a[0] >= 0 and b[0] > 0 else None


_Rule: TypeAlias = "Callable[..., Interval | None]"
_PARTS = (*VIEWS, *BARRIERS, "tensor.extract_slice", "tensor.reshape", "linalg.transpose")
_CHOICES = ("arith.select", "arith.minsi", "arith.maxsi", "arith.cmpi", "linalg.yield")
_RULES: dict[str, _Rule] = {
    "index_cast": lambda a: a, "extsi": lambda a: a, "trunci": lambda a: a, "cmpi": lambda a, b: (0, 1),
    "extui": lambda a: a if a[0] >= 0 else None, "index_castui": lambda a: a if a[0] >= 0 else None,
    "addi": _corners(lambda x, y: x + y), "subi": _corners(lambda x, y: x - y), "muli": _corners(lambda x, y: x * y),
    "minsi": _corners(min), "maxsi": _corners(max), "minui": _unsigned(_corners(min)),
    "maxui": _unsigned(_corners(max)), "remsi": _remainder, "remui": _unsigned(_remainder),
    "sitofp": lambda a: a, "fptosi": lambda a: (int(a[0]), int(a[1])),
    "math.floor": lambda a: (floor(a[0]), floor(a[1])), "divf": _floats_quotient,
    "divsi": _quotient, "divui": _quotient, "floordivsi": _quotient,
    "andi": lambda a, b: (0, min(a[1], b[1])) if a[0] >= 0 and b[0] >= 0 else None,
}  # fmt: skip
