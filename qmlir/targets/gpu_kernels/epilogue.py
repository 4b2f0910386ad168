"""The epilogue of a sum: the bodies of a kernel, applied to neighbouring columns of one row.

It does not depend on how the sum was computed, only on its place: a row, and the first of `lanes` columns. For rows and
columns past the end, operands of the last ones are read, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from ...core.mlir import arith, ir
from ...kernels.bodies import BodyCloner, is_small_float
from ...kernels.description import (
    BATCH,
    COLUMN,
    GROUP,
    MATRIX,
    ROW,
    SLOT,
    TOKEN,
    Kernel,
    Literal,
    Operand,
    Previous,
    RowSum,
    Stage,
)
from ...kernels.order import letters
from ...kernels.small_floats import decoded
from . import bf16, emit as e
from .batch import Place, Products
from .executable import RuntimeSize, View
from .machine import Machine

if TYPE_CHECKING:
    from ...core.mlir import OpLike

# The longest vector that one load or store moves if memory is seen as vectors.
_WIDEST = 4

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Where:
    """The row and first column of a run. `safe_row` and `safe_column`, for reads, are clamped to the product; they are
    the same objects as `row` and `column` if these are known to be inside."""

    row: e.Index
    column: e.Index
    safe_row: e.Index
    safe_column: e.Index

    def column_inside(self, n: int) -> e.Condition:
        """Whether the first column is less than `n`."""
        return True if self.column is self.safe_column else e.less(self.column, n)


@dataclass(frozen=True)
class GroupReads:
    """Early loads of the operands that combine a group, while the group before is multiplied: `read` loads them for a
    group, and `know` makes the values known in the epilogue's scope. By default nothing is loaded early."""

    read: Callable[[e.Index], list[ir.Value]] = lambda group: []
    know: Callable[[e.Index, Sequence[ir.Value]], None] = lambda group, values: None


class Epilogue:
    """Loads the operands of a kernel's bodies, clones the bodies, and stores the result."""

    def __init__(self, kernel: Kernel, machine: Machine, lanes: int, *, decodes_columns: bool = False) -> None:
        """`decodes_columns`: weights are decoded one column at a time, so operands of the decoding are scalars."""
        self.kernel, self.lanes = kernel, lanes
        decode = kernel.rhs.decode
        self._single = {*kernel.scales, *(decode.operands if decodes_columns and decode is not None else ())}
        self._rules = {**machine.rules, "arith.extf": _extended}
        self._machine = machine
        self.cloner = bf16.cloner(lanes, machine, self._rules)
        self._memory: dict[Operand, ir.Value] = {}
        self._place = Place(0)
        self._known: dict[tuple[object, ...], object] = {}

    # ---- memory

    @property
    def views(self) -> list[View]:
        """Views of the kernel's operands, and last of its result."""
        batch = self.kernel.batch
        sizes: dict[str, int | RuntimeSize | None] = {
            GROUP: self.kernel.groups, ROW: self.kernel.m, COLUMN: self.kernel.columns,
            TOKEN: Products(self.kernel).activation_rows,
        }  # fmt: skip
        products: list[int | None] = []
        if batch is not None:
            sizes |= {BATCH: batch.size, MATRIX: batch.matrices}
            products = [] if batch.side_by_side else [batch.size]
        views = []
        for operand in self.kernel.operands:
            width = self._width_of(operand)
            known = {**sizes, SLOT: _slots(operand)} if SLOT in operand.axes else sizes
            if operand in self.kernel.scales:  # words of four groups
                known = {**sizes, GROUP: operand.value.type.shape[operand.source_axes.index(GROUP)]}
            element = operand.element_type
            element = e.integer(8) if is_small_float(element) else bf16.stored_type(element, self._machine)
            views.append(View.of_vectors([known[a] for a in letters(operand)], width, element))
        window = self.kernel.lhs.window
        if self.kernel.planes and window is not None:
            pixels = window.result[0] * window.result[1]
            return [*views, View((window.image[0], self.kernel.columns, pixels), self._stored_result)]
        rows = self.kernel.m
        if batch is not None and batch.target is not None:
            products, rows = [], self.kernel.row_sizes[0]
        return [*views, View.of_vectors([*products, rows, self.kernel.columns], self._width, self._stored_result)]

    @property
    def _stored_result(self) -> ir.Type:
        return bf16.stored_type(self.kernel.result_type, self._machine)

    @property
    def _first(self) -> e.Index:
        """The product's first column in the result of products side by side."""
        return e.multiply(self._place.product, self.kernel.n) if self.kernel.side_by_side else 0

    @property
    def _width(self) -> int:
        """Elements of a load or store along columns."""
        width = min(self.lanes, _WIDEST) if self._machine.vectors_in_memory else 1
        return width if self.kernel.n % width == 0 else 1

    def _width_of(self, operand: Operand) -> int:
        return self._width if COLUMN in operand.axes and operand not in self._single else 1

    def bind(self, memory: Sequence[ir.Value], place: Place) -> None:
        """Set the memrefs of `views`, and the product that the epilogue is in."""
        *operands, self._result = memory
        self._memory = dict(zip(self.kernel.operands, operands, strict=True))
        self._place = place

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end the values that were loaded inside, such as in the region of a loop."""
        outer = dict(self._known)
        yield
        self._known = outer

    def once(self, key: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        """The value that is known by `key` in this scope; `make` it if there is none."""
        if key not in self._known:
            self._known[key] = make()
        return cast("_Made", self._known[key])

    # ---- operands

    def _operand(self, operand: Operand, group: e.Index, row: e.Index, column: e.Index) -> ir.Value:
        """The operand's values at the columns from `column` on."""
        at = self._at(operand, group, row, column)
        return self.once(self._key(operand, at), lambda: self._load(operand, at))

    def _at(self, operand: Operand, group: e.Index, row: e.Index, column: e.Index) -> dict[str, e.Index]:
        """The index on each axis."""
        at = {**self._product_axes, GROUP: group, ROW: row, COLUMN: column}
        if TOKEN in operand.axes:
            at[TOKEN] = self.once((TOKEN, row), lambda: self._place.token(row))
        if SLOT in operand.axes:
            at[SLOT] = self.once((SLOT, row), lambda: self._place.slot(row))
        return at

    @staticmethod
    def _key(operand: Operand, at: Mapping[str, e.Index]) -> tuple[object, ...]:
        return (operand, *(at[a] for a in letters(operand)))

    def number(self, operand: Operand, at: Mapping[str, e.Index]) -> ir.Value:
        """One element of an operand, by the index on each of its axes."""
        return e.load(self._memory[operand], [at[axis] for axis in letters(operand)])

    def hold(
        self, operands: Sequence[Operand], group: e.Index, rows: Sequence[e.Index], columns: Sequence[e.Index]
    ) -> None:
        """Load now the operands that are the same in all columns, at `rows`, and those that are the same in all rows,
        at the runs from `columns` on."""
        for operand, at in self._places(operands, group, rows, columns).values():
            self._operand(operand, group, at[ROW], at[COLUMN])

    def ahead(self, operands: Sequence[Operand], rows: Sequence[e.Index], columns: Sequence[e.Index]) -> GroupReads:
        """As `hold`, for a loop that loads the operands of one group while the group before is multiplied."""

        def read(group: e.Index) -> list[ir.Value]:
            return [self._load(operand, at) for operand, at in self._places(operands, group, rows, columns).values()]

        def know(group: e.Index, values: Sequence[ir.Value]) -> None:
            self._known |= zip(self._places(operands, group, rows, columns), values, strict=True)

        return GroupReads(read, know)

    def _places(
        self, operands: Sequence[Operand], group: e.Index, rows: Sequence[e.Index], columns: Sequence[e.Index]
    ) -> dict[tuple[object, ...], tuple[Operand, dict[str, e.Index]]]:
        """The operands and indices that `hold` loads, by the key that each value is known by."""
        found = {}
        for operand in dict.fromkeys(operands):
            follows = _follows_rows(operand)
            if follows and COLUMN in operand.axes:
                continue
            for place in rows if follows else columns:
                at = self._at(operand, group, place if follows else 0, 0 if follows else place)
                found[self._key(operand, at)] = operand, at
        return found

    @property
    def _product_axes(self) -> dict[str, e.Index]:
        return {BATCH: self._place.product, MATRIX: self._place.matrix}

    def _load(self, operand: Operand, at: dict[str, e.Index]) -> ir.Value:
        return self._number(operand, self._stored(operand, at))

    def _number(self, operand: Operand, value: ir.Value) -> ir.Value:
        """An operand as a body reads it: one-byte floats as f32, and bf16 too if the target does not have it."""
        if not is_small_float(operand.element_type):
            return bf16.loaded(value, operand.element_type)
        lanes = e.vector_of(self.lanes, e.integer(32))
        return decoded(arith.extui(lanes, value), str(operand.element_type))

    def _stored(self, operand: Operand, at: dict[str, e.Index]) -> ir.Value:
        memory = self._memory[operand]
        where = [at[a] for a in letters(operand)]
        if COLUMN not in operand.axes:
            return e.broadcast(e.load(memory, where), self.lanes)
        if not self._machine.vectors_in_memory:
            return e.load_run(memory, where, self.lanes)
        *outer, column = where
        width = self._width_of(operand)
        if width == 1:
            last = self.kernel.n - 1
            columns = [e.add(self._first, e.minimum(e.add(column, i), last)) for i in range(self.lanes)]
            return e.gathered([e.load(memory, [*outer, c]) for c in columns])
        vectors = [e.add(e.divide(column, width), i) for i in range(self.lanes // width)]
        if self.kernel.n % self.lanes:  # vectors past the last column
            vectors = [e.minimum(v, self.kernel.n // width - 1) for v in vectors]
        pieces = [e.load(memory, [*outer, e.add(e.divide(self._first, width), v)]) for v in vectors]
        return pieces[0] if len(pieces) == 1 else e.gathered([x for piece in pieces for x in e.elements(piece)])

    # ---- bodies

    def _clone(
        self,
        stage: Stage,
        values: Sequence[ir.Value],
        sum_: ir.Value | None,
        at: tuple[e.Index, e.Index, e.Index],
        *more: ir.Value,
    ) -> ir.Value:
        arguments = []
        for source in stage.sources:
            if isinstance(source, Previous):
                arguments.append(values[source.index])
            elif isinstance(source, Literal):
                arguments.append(self.cloner.splat(source.value))
            elif isinstance(source, RowSum):
                assert sum_ is not None
                arguments.append(e.broadcast(sum_, self.lanes))
            else:
                arguments.append(self._operand(source, *at))
        return self.cloner.clone(stage.body, [*arguments, *more])

    def decode(self, codes: ir.Value, group: e.Index, column: e.Index) -> ir.Value:
        """Decode i8 codes of neighbouring columns."""
        assert self.kernel.rhs.decode is not None
        return self._clone(self.kernel.rhs.decode, [codes], None, (group, 0, column))

    def column_operands(self, group: e.Index, column: e.Index, lanes: int = 1) -> dict[Operand, ir.Value]:
        """The operands that decode one column's codes, or as vectors those of `lanes` neighbouring columns."""
        stage = self.kernel.rhs.decode
        assert stage is not None
        at = {**self._product_axes, GROUP: group, COLUMN: e.add(self._first, column)}
        found = {}
        for o in stage.operands:
            where = [at[a] for a in letters(o)]
            run = lanes > 1 and COLUMN in o.axes
            value = e.load_run(self._memory[o], where, lanes) if run else e.load(self._memory[o], where)
            found[o] = bf16.loaded(value, o.element_type)
        return found

    def decode_column(self, codes: ir.Value, held: Mapping[Operand, ir.Value]) -> ir.Value:
        """Decode neighbouring codes of one column with its `column_operands`."""
        stage = self.kernel.rhs.decode
        assert stage is not None
        lanes = codes.type.shape[0]
        cloner = bf16.cloner(lanes, self._machine, self._rules)
        arguments = []
        for source in stage.sources:
            if isinstance(source, Literal):
                arguments.append(cloner.splat(source.value))
            elif isinstance(source, Operand):
                arguments.append(e.broadcast(held[source], lanes))
            else:
                arguments.append(codes)
        return cloner.clone(stage.body, arguments)

    def combine(
        self, total: ir.Value, part: ir.Value, sum_: ir.Value | None, group: e.Index, row: e.Index, column: e.Index
    ) -> ir.Value:
        """Add the partial sum of one group to `total`; `sum_` is the sum of the row's codes in the group."""
        assert self.kernel.combine is not None
        return self._clone(self.kernel.combine, [self._with_fraction(part)], sum_, (group, row, column), total)

    def _with_fraction(self, part: ir.Value) -> ir.Value:
        """The value that a sum of codes represents: times `Kernel.fraction`, if there is one."""
        if self.kernel.fraction is None:
            return part
        f32 = ir.F32Type.get()
        number = arith.sitofp(e.vector_of(self.lanes, f32), part)
        return arith.mulf(number, e.splat(self.kernel.fraction, self.lanes, f32))

    def start(self) -> ir.Value:
        """The total before the first group."""
        return e.zero(e.vector_of(self.lanes, self.kernel.value_type))

    def finish(self, value: ir.Value, sum_: ir.Value | None, row: e.Index, column: e.Index) -> ir.Value:
        """Apply the kernel's stages to a sum."""
        values = [value if self.kernel.combine is not None else self._with_fraction(value)]
        for stage in self.kernel.stages:
            values.append(self._clone(stage, values, sum_, (0, row, column)))
        return values[-1]

    # ---- result

    def goes(self, at: Where) -> tuple[list[e.Index], e.Condition]:
        """The indices of a row of the product in the result, and whether the row exists and is written."""
        inside = True if at.row is at.safe_row else e.less(at.row, self._place.rows)
        batch = self.kernel.batch
        if batch is not None and batch.target is not None:
            row, there = self._place.goes(at.safe_row)
            return [row], e.both(inside, there)
        outer = [] if batch is None or batch.side_by_side else [self._place.product]
        return [*outer, at.row], inside

    def write(self, value: ir.Value, at: Where, place: Sequence[e.Index] = ()) -> None:
        """Store a run, if its row and columns exist. `place`: the indices of a row that is written, see `goes`."""
        n, column = self.kernel.n, at.column
        inside: e.Condition = True
        if self._stored_result != self.kernel.result_type:
            value = bf16.bits(value)
        if not place:
            place, inside = self.goes(at)
        if self.kernel.planes:
            self._write_planes(value, at, place[-1], inside)
            return
        if not self._machine.vectors_in_memory:
            e.guarded(e.both(inside, at.column_inside(n)), lambda: e.store_run(value, self._result, [*place, column]))
            return
        first = e.divide(self._first, self._width)
        if self.lanes == self._width:
            with e.when(e.both(inside, at.column_inside(n))):
                e.store(value, self._result, [*place, e.add(first, e.divide(column, self._width))])
            return
        parts = e.elements(value)
        for i in range(0, self.lanes, self._width):
            with e.when(e.both(inside, e.less(e.add(column, i), n))):
                piece = parts[i] if self._width == 1 else e.gathered(parts[i : i + self._width])
                e.store(piece, self._result, [*place, e.add(first, e.divide(e.add(column, i), self._width))])

    def _write_planes(self, value: ir.Value, at: Where, row: e.Index, inside: e.Condition) -> None:
        """Store a run to a result in which each column is a plane of pixels."""
        window, parts = self.kernel.lhs.window, e.elements(value)
        assert window is not None
        pixels = window.result[0] * window.result[1]
        image, pixel = e.divide(row, pixels), e.remainder(row, pixels)
        whole = not self._machine.vectors_in_memory  # either all columns of a run exist, or none
        for first in range(0, self.lanes, self.lanes if whole else 1):
            there = at.column_inside(self.kernel.n) if whole else e.less(e.add(at.column, first), self.kernel.n)
            with e.when(e.both(inside, there)):
                for i in range(first, self.lanes if whole else first + 1):
                    e.store(parts[i], self._result, [image, e.add(self._first, e.add(at.column, i)), pixel])


def _follows_rows(operand: Operand) -> bool:
    """Whether the operand differs from row to row of a product."""
    return any(axis in operand.axes for axis in (ROW, SLOT, TOKEN))


def _slots(operand: Operand) -> int | RuntimeSize:
    """The number of slots, or a `RuntimeSize` if it is dynamic."""
    kind = ir.RankedTensorType(operand.value.type)
    return RuntimeSize(tokens=True) if kind.is_dynamic_dim(0) else int(kind.get_dim_size(0))


def _extended(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """Drop an `arith.extf` whose operand, a one-byte float, was extended when it was loaded."""
    return operands[0] if operands[0].type.element_type == op.results[0].type else None
