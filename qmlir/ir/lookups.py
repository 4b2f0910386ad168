"""What a program requires of its arguments without stating it: indices inside the tables that they are looked up in,
and axes that are no longer than the tables of their positions.

A `tensor.extract` reads whatever is at its indices, also behind the end of its source, and a scatter writes there.
If an index is a function of one element of an argument, or of a position along an axis, it determines the elements and
the sizes that the program accepts. A `cf.assert` that compares a size does so too. If an index is a function of one
element of a computed tensor, the program has to check that tensor (`computed`). Any other index is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..core.mlir import collect, ir
from ..dialect.dtypes import DTYPES
from ..dialect.ops.common import shape_of
from ..dialect.sizes import Size, Solver
from ..spec import Limit, Part, Range, TensorSpec
from .affine import indexing_maps
from .piecewise import IndexValue, Piece, Piecewise, add, compare, greatest, least, multiply, select, unknown
from .relations import Relations, slice_sizes
from .walk import BARRIERS, VIEWS, argument_number, producer, terminator_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_LARGEST = (1 << 63) - 1
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge")  # of arith.cmpi, by number; the unsigned ones follow


@dataclass(frozen=True)
class _Held:
    """An element of an argument, or of a part of it. `arranged` records how the tensor at hand rearranges the argument:
    two elements of an argument are the same only if they are at the same place."""

    argument: int
    part: tuple[Part, ...] = ()
    arranged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Computed:
    """An element of a tensor that is computed in another way."""

    tensor: ir.Value
    arranged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Position:
    """A position along an axis of a tensor, which has this size."""

    size: Size
    tensor: ir.Value
    axis: int
    arranged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _SizeOf:
    """A dynamic size."""

    name: str


_Source: TypeAlias = "_Held | _Computed | _Position | _SizeOf"
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Computed:
    """`op` reads or writes at an index that is a function of the elements of `tensor`. The index is inside its axis, of
    `size` elements, if these are in [least, most]."""

    op: OpLike
    tensor: ir.Value
    least: int
    most: int
    size: int


@dataclass(frozen=True)
class Walked:
    """`op` reads or writes at every position along axis `axis` of `tensor`, which is inside its table if there are
    at most `most`. No argument has this size."""

    op: OpLike
    tensor: ir.Value
    axis: int
    most: int


class Lookups:
    """What one function requires of its arguments, whose specs are `inputs`, and of the tensors that it computes."""

    def __init__(self, function: OpLike, inputs: Sequence[TensorSpec], solver: Solver, relations: Relations) -> None:
        self._solver, self._relations, self._inputs = solver, relations, inputs
        self._arguments = list(function.regions[0].blocks[0].arguments)
        self._elements: dict[ir.Value, IndexValue | None] = {}
        self._ranges: dict[tuple[int, tuple[Part, ...]], tuple[int, int]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self.computed: list[Computed] = []
        self._walked: list[tuple[Walked, Size]] = []
        for op in collect(function, "tensor.extract", "iree_linalg_ext.scatter", "cf.assert"):
            if op.name == "tensor.extract":
                self._read_extract(op)
            elif op.name == "iree_linalg_ext.scatter":
                self._read_scatter(op)
            elif op.parent.name == "func.func":
                self._read_assert(op)

    def ranges(self) -> tuple[Range, ...]:
        """The ranges that elements of arguments have to be in."""
        return tuple(Range(argument, least, most, part) for (argument, part), (least, most) in
                     sorted(self._ranges.items(), key=lambda r: (r[0][0], str(r[0][1]))))  # fmt: skip

    def limits(self) -> tuple[Limit, ...]:
        """The limits of the sizes of arguments, each for the first axis that has the size."""
        found = []
        for i, argument in enumerate(self._arguments):
            for axis, stated in enumerate(shape_of(argument)):
                size = None if stated is not None else self._solver.resolve(self._relations.dims(argument)[axis])
                if not isinstance(size, Size) or size.div != 1 or size.name not in self._sizes:
                    continue
                first, last = self._sizes.pop(size.name)
                limit = Limit(i, axis, max(size.of(first), 0), None if last >= _LARGEST else size.of(last))
                if limit.least > 0 or limit.most is not None:
                    found.append(limit)
        return tuple(found)

    @property
    def walked(self) -> list[Walked]:
        """The axes whose positions are looked up and whose sizes no argument has."""
        known = {
            size.name
            for argument in self._arguments
            for size in map(self._solver.resolve, self._relations.dims(argument))
            if isinstance(size, Size) and size.div == 1
        }
        return [walked for walked, size in self._walked if size.div != 1 or size.name not in known]

    # ---- requirements of indices and conditions

    def _read_extract(self, op: OpLike) -> None:
        body = op.parent
        if body.name != "linalg.generic":  # it may be in a branch that does not run
            return
        table, *indices = op.operands
        for size, index in zip(shape_of(table), indices, strict=True):
            value = None if size is None else self._scalar(index, body)
            if size is None or value is None or isinstance(value, int):
                continue
            self._read_index(op, value, size)

    def _read_scatter(self, op: OpLike) -> None:
        _, indices, out = op.operands
        axes = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
        for axis, column in zip(axes, _columns(indices, len(axes)), strict=False):
            value, size = self._tensor(column), shape_of(out)[axis]
            if isinstance(value, Piecewise) and size is not None:
                self._read_index(op, value, size)

    def _read_index(self, op: OpLike, value: Piecewise, size: int) -> None:
        """Record what `op` requires, which reads or writes at the index `value` of an axis of `size` elements."""
        inside = value.where(0, size - 1)
        source: _Source = value.of  # type: ignore[assignment]
        if len(inside) == 1 and isinstance(source, _Held):
            self._narrow(self._ranges, (source.argument, source.part), inside[0])
        elif len(inside) == 1 and isinstance(source, _Computed):
            self.computed.append(Computed(op, source.tensor, *inside[0], size))
        elif isinstance(source, _Position) and inside and inside[0][0] == 0:
            size_of, most = source.size, inside[0][1] + 1  # the last position is one less
            if size_of.div == 1:
                self._narrow(self._sizes, size_of.name, (0, (most - size_of.add) // size_of.mul))
            self._walked.append((Walked(op, source.tensor, source.axis, most), size_of))

    def _read_assert(self, op: OpLike) -> None:
        value = self._scalar(op.operands[0], None)
        holds = [] if value is None or isinstance(value, int) else value.where(1, 1)
        if len(holds) == 1 and isinstance(value.of, _SizeOf):  # type: ignore[union-attr]
            self._narrow(self._sizes, value.of.name, holds[0])  # type: ignore[union-attr]

    @staticmethod
    def _narrow(known: dict[_Key, tuple[int, int]], key: _Key, to: tuple[int, int]) -> None:
        first, last = known.get(key, to)
        known[key] = max(first, to[0]), min(last, to[1])

    # ---- values as functions of one unknown

    def _scalar(self, value: ir.Value, body: OpLike | None) -> IndexValue | None:
        """A scalar, in the body of a generic or outside of one, as a function of one unknown; None if not known."""
        op = producer(value)
        if op is None:
            place = argument_number(value, body)
            return None if body is None or place is None else self._in_body(body, place)
        name = op.name.removeprefix("arith.")
        if name == "constant":
            attribute = op.attributes["value"]
            return ir.IntegerAttr(attribute).value if isinstance(attribute, ir.IntegerAttr) else None
        if op.name == "linalg.index":
            return None if body is None else self._position(body, ir.IntegerAttr(op.attributes["dim"]).value)
        if op.name == "tensor.dim":
            return self._size_of(op)
        if name not in _RULES and name not in _SAME and name != "extui":
            return None
        if name in ("andi", "ori") and op.results[0].type != ir.IntegerType.get_signless(1):
            return None
        operands = [self._scalar(v, body) for v in op.operands]
        if any(v is None for v in operands):
            return None
        values = [v for v in operands if v is not None]
        if name == "cmpi":
            number = ir.IntegerAttr(op.attributes["predicate"]).value
            return compare(_PREDICATES[number], *values) if number < len(_PREDICATES) else None
        if name == "extui":  # the same number if it is not negative
            [wide] = values
            negative = wide < 0 if isinstance(wide, int) else bool(wide.where(-_LARGEST - 1, -1))
            return None if negative else wide
        return values[0] if name in _SAME else _RULES[name](*values)

    def _in_body(self, generic: OpLike, number: int) -> IndexValue | None:
        """An argument of a generic's body, as a function of one unknown."""
        if number >= len(generic.operands) - len(generic.results):
            return None
        value = self._tensor(generic.operands[number])
        maps = indexing_maps(generic)
        return value if maps[number] == maps[-1] else _arranged(value, str(maps[number]))

    def _position(self, generic: OpLike, loop: int) -> IndexValue | None:
        for operand, indexing in zip(generic.operands, indexing_maps(generic), strict=True):
            for axis, expression in enumerate(indexing.results):
                if isinstance(expression, ir.AffineDimExpr) and expression.position == loop:
                    size = self._solver.resolve(self._relations.dims(operand)[axis])
                    if isinstance(size, int):
                        return unknown(("position", size), 0, size - 1)
                    return unknown(_Position(size, operand, axis, (str(loop),)), 0, _LARGEST)
        return None

    def _size_of(self, op: OpLike) -> IndexValue | None:
        axis = self._scalar(op.operands[1], None)
        value = op.operands[0]
        if not isinstance(axis, int) or not isinstance(value.type, ir.RankedTensorType):
            return None
        given = _given_size(value, axis)
        if given is not None:
            return self._scalar(given, None)
        size = self._solver.resolve(self._relations.dims(value)[axis])
        if isinstance(size, int) or size.div != 1:
            return size if isinstance(size, int) else None
        return Piecewise(_SizeOf(size.name), (Piece(0, _LARGEST, size.mul, size.add),))

    def _tensor(self, value: ir.Value) -> IndexValue | None:
        """Each element of a tensor, as a function of one unknown."""
        if value not in self._elements:
            made = self._made(value)
            kind = value.type.element_type
            if made is None and isinstance(kind, ir.IntegerType):
                made = unknown(_Computed(value), -(1 << (kind.width - 1)), (1 << (kind.width - 1)) - 1)
            self._elements[value] = made
        return self._elements[value]

    def _made(self, value: ir.Value) -> IndexValue | None:
        op = producer(value)
        if op is None:
            return self._held(value, ())
        if op.name in (*VIEWS, *BARRIERS):
            return _arranged(self._tensor(op.operands[0]), str(value.type))
        if op.name == "tensor.extract_slice":
            return self._held(op.operands[0], self._part(op))
        if op.name == "arith.constant":
            attribute = op.attributes["value"]
            splat = isinstance(attribute, ir.DenseIntElementsAttr) and attribute.is_splat
            return int(attribute[0]) if splat else None
        if op.name != "linalg.generic":
            return None
        number = list(op.results).index(value)
        return self._scalar(terminator_of(op.regions[0].blocks[0]).operands[number], op)

    def _part(self, op: OpLike) -> tuple[Part, ...] | None:
        """The part of each axis that a slice takes; None if it is not known."""
        offsets, sizes, steps = (list(op.attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides"))
        dynamic = ir.ShapedType.get_dynamic_size()
        given = iter(slice_sizes(op, 1))
        parts: list[Part] = []
        for whole, offset, size, step in zip(self._relations.dims(op.operands[0]), offsets, sizes, steps, strict=True):
            term = self._relations.index(next(given)) if size == dynamic else size
            if offset == 0 and step == 1 and self._solver.resolve(term) == self._solver.resolve(whole):
                parts.append(None)
            elif step == 1 and dynamic not in (offset, size):
                parts.append((offset, offset + size))
            else:
                return None
        return tuple(parts) if any(parts) else ()

    def _held(self, value: ir.Value, part: tuple[Part, ...] | None) -> IndexValue | None:
        if value not in self._arguments or part is None:
            return None
        number = self._arguments.index(value)
        dtype = DTYPES[self._inputs[number].dtype]
        integer = dtype.kind != "float" and isinstance(value.type.element_type, ir.IntegerType)
        return unknown(_Held(number, part), dtype.lo, dtype.hi) if integer else None


def _columns(indices: ir.Value, count: int) -> list[ir.Value]:
    """The columns of a scatter's indices, each as a tensor; none unless each is concatenated or inserted."""
    if count == 1:
        return [indices]
    op = producer(indices)
    found: dict[int, ir.Value] = {}
    if op is not None and op.name == "tensor.concat":
        found = dict(enumerate(op.operands))
    while op is not None and op.name == "tensor.insert_slice":
        at = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))[-1]
        found.setdefault(at, op.operands[0])
        op = producer(op.operands[1])
    whole = sorted(found) == list(range(count)) and all(shape_of(v)[-1] == 1 for v in found.values())
    return [found[i] for i in range(count)] if whole else []


def _given_size(value: ir.Value, axis: int) -> ir.Value | None:
    """The operand that gave a tensor its dynamic size along `axis`; None if it is not found."""
    op = producer(value)
    while op is not None and op.name == "linalg.generic":
        number = len(op.operands) - len(op.results) + list(op.results).index(value)
        value = op.operands[number]
        op = producer(value)
    if op is None or op.name not in _MADE_OF:
        return None
    given = _MADE_OF[op.name](op)
    dynamic = [a for a, size in enumerate(shape_of(value)) if size is None]
    return given[dynamic.index(axis)] if axis in dynamic and len(given) == len(dynamic) else None


def _arranged(value: IndexValue | None, how: str) -> IndexValue | None:
    """A value with its elements in another order, which `how` identifies."""
    if value is None or isinstance(value, int) or not isinstance(value.of, (_Held, _Computed, _Position)):
        return value
    return replace(value, of=replace(value.of, arranged=(*value.of.arranged, how)))


_MADE_OF: dict[str, Callable[[OpLike], Sequence[ir.Value]]] = {  # the dynamic sizes that an op states
    "tensor.empty": lambda op: op.operands,
    "tensor.expand_shape": lambda op: list(op.operands)[1:],
    "tensor.extract_slice": lambda op: slice_sizes(op, 1),
}
_SAME = ("index_cast", "extsi", "trunci")  # a number that does not fit its type is outside of any table too
_RULES: dict[str, Callable[..., IndexValue | None]] = {
    "addi": add, "subi": lambda a, b: add(a, b, -1), "muli": multiply, "andi": multiply, "ori": greatest,
    "minsi": least, "maxsi": greatest, "select": select, "cmpi": compare,
}  # fmt: skip
