"""Groups of elementwise ops and reductions (sum, maximum, minimum) along rows: layer norms, dynamic quantisation, and
the ops between them.

A group works on rows of `width` elements. A value has one element per row and column (`WIDE`), one per row (`NARROW`),
one per column (`COLUMN`), or one in total (`SCALAR`). Ops that use the result of a reduction need another pass over the
row: `phases` gives the pass of each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..ir.affine import indexing_maps, loop_sizes
from ..ir.attributes import loop_kinds
from ..ir.walk import defining_op, made_by, operations_of, read_by, terminator_of
from .bodies import scalar_constant, unclonable

if TYPE_CHECKING:
    from ..core.mlir import OpLike

WIDE, NARROW, COLUMN, SCALAR = "mn", "m", "n", ""
# Reductions and their neutral elements.
_NEUTRAL = {
    "arith.addf": 0.0, "arith.addi": 0, "arith.maximumf": float("-inf"), "arith.minimumf": float("inf"),
    "arith.maxsi": float("-inf"),
}  # fmt: skip
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


@dataclass(frozen=True)
class Space:
    """The iteration space of a group: the sizes of the axes of rows (None: dynamic), and the width of a row."""

    rows: tuple[int | None, ...]
    width: int


@dataclass(frozen=True)
class Reduction:
    """One result of a reducing step: `combine` accumulates the body's value for each element, starting at `start`."""

    combine: OpLike  # the op of the body
    element: ir.Value  # its operand that is not the accumulator
    start: ir.Attribute  # an attribute

    @property
    def neutral(self) -> float | int:
        """The neutral element; of an integer maximum the smallest value of the type."""
        kind = self.element.type
        if isinstance(kind, ir.IntegerType) and self.combine.name == "arith.maxsi":
            return -(1 << (kind.width - 1))
        return _NEUTRAL[self.combine.name]


@dataclass(frozen=True)
class RowStep:
    """A generic of a group. `sources`: for each of its inputs, the kind of value (`WIDE` and so on)."""

    op: OpLike
    sources: tuple[str, ...]
    result: str  # WIDE or NARROW
    reductions: tuple[Reduction, ...] = ()

    @property
    def inputs(self) -> list[ir.Value]:
        return list(self.op.operands)[: len(self.sources)]

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]


@dataclass(frozen=True)
class RowGroup:
    """A group: its steps in order, its reshapes between `[M]` and `[M, 1]` (result to operand), and the values that it
    makes for other ops."""

    space: Space
    steps: tuple[RowStep, ...]
    views: tuple[tuple[ir.Value, ir.Value], ...]
    outputs: tuple[tuple[ir.Value, str], ...]
    operations: tuple[OpLike, ...]

    @property
    def inputs(self) -> tuple[tuple[ir.Value, str], ...]:
        """The tensors that the group reads, each once with its kind. Computed from the ops on each call: when a kernel
        replaces another group, that group's results are replaced by other values."""
        own = {v for op in self.operations for v in op.results}
        found: dict[ir.Value, str] = {}
        for step in self.steps:
            for value, how in zip(step.inputs, step.sources, strict=True):
                if value not in own:
                    found.setdefault(value, how)
        return tuple(found.items())

    def source(self, value: ir.Value) -> ir.Value:
        """The value behind the group's reshapes."""
        for result, operand in self.views:
            if result == value:
                return self.source(operand)
        return value

    def phases(self) -> list[list[RowStep]]:
        """The steps of each pass over the row. A step that reads a reduction's result needs a later pass; a step with
        one element per row runs at the end of the pass whose reductions it reads."""
        ready: dict[ir.Value, int] = {}  # value -> first pass that can read it
        made: list[list[RowStep]] = []
        for step in self.steps:
            when = max([ready.get(self.source(v), 0) for v in step.inputs], default=0)
            narrow = step.result == NARROW and not step.reductions
            if narrow and when:
                when -= 1  # at the end of the pass whose reductions it reads
            while len(made) <= when:
                made.append([])
            made[when].append(step)
            for value in step.op.results:
                ready[value] = when + (step.result == NARROW)
        return made


def classify(op: OpLike, space: Space | None = None) -> tuple[Space, RowStep] | None:
    """The op as a step on rows of `space`, by default on rows along its own last axis; None if it is not such a
    step."""
    if op.name != "linalg.generic":
        return None
    block = op.regions[0].blocks[0]
    maps = indexing_maps(op)
    kinds = [kind == "reduction" for kind in loop_kinds(op)]
    count = maps[0].n_dims
    sizes = _sizes(op, maps)
    if space is None:
        if count < 2 or sizes[-1] is None or any(kinds[:-1]):
            return None
        space = Space(tuple(sizes[:-1]), sizes[-1])
    rank = len(space.rows)
    if any(kinds[:rank]) or count not in (rank, rank + 1) or tuple(sizes[:rank]) != space.rows:
        return None
    inner = count > rank and sizes[rank] != 1
    if inner and sizes[rank] != space.width:
        return None
    reads = [_read(m, rank, inner) for m in maps]
    inputs = len(op.operands) - len(op.results)
    reduces = count > rank and kinds[rank]
    wanted = NARROW if reduces or not inner else WIDE
    if None in reads or any(r != wanted for r in reads[inputs:]):
        return None
    if not all(_known_sizes(v, r, space) for v, r in zip(op.operands, reads, strict=True)):
        return None
    if not all(_storable(v.type.element_type) for v in (*op.operands, *op.results)) or unclonable(block):
        return None
    running = list(block.arguments)[inputs:]
    reductions: tuple[Reduction, ...] = ()
    if reduces:
        if inputs != 1:
            return None  # several operands: a product of matrices, say
        found = [_reduction(op, i, running) for i in range(len(op.results))]
        if not inner or None in found:
            return None
        reductions = tuple(r for r in found if r is not None)
    elif len(op.results) != 1 or any(list(argument.uses) for argument in running):
        return None
    return space, RowStep(op, tuple(r for r in reads[:inputs] if r is not None), wanted, reductions)


def _sizes(op: OpLike, maps: Sequence[ir.AffineMap]) -> list[int | None]:
    sizes = loop_sizes(op.operands, maps)
    return [sizes.get(loop) for loop in range(maps[0].n_dims)]


def _read(affine_map: ir.AffineMap, rank: int, inner: bool) -> str | None:
    """The kind of an operand that is read by a map; None if it is none of the four."""
    found = list(affine_map.results)
    dims = [x.position if isinstance(x, ir.AffineDimExpr) else None for x in found]
    zeros = [isinstance(x, ir.AffineConstantExpr) and x.value == 0 for x in found]
    if not found:
        return SCALAR
    if dims == [rank]:
        return COLUMN if inner else None
    if dims[:rank] != list(range(rank)):
        return None
    rest = found[rank:]
    if not rest:
        return NARROW
    if len(rest) > 1:
        return None
    if dims[rank] == rank:
        return WIDE if inner else NARROW
    return NARROW if zeros[rank] else None


def _known_sizes(value: ir.Value, how: str | None, space: Space) -> bool:
    """Whether the only dynamic axes of an operand are axes of rows that are dynamic in the space too: an axis that is
    dynamic here may have a static size in another operand, and a kernel gets the sizes of axes of rows only."""
    kind = ir.RankedTensorType(value.type)
    counted = range(len(space.rows)) if how in (WIDE, NARROW) else ()
    return all(a in counted and space.rows[a] is None for a in range(kind.rank) if kind.is_dynamic_dim(a))


def _storable(t: ir.Type) -> bool:
    return (isinstance(t, ir.IntegerType) and t.width in (8, 16, 32, 64)) or isinstance(
        t, (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)
    )


def _reduction(op: OpLike, number: int, running: Sequence[ir.Value]) -> Reduction | None:
    block = op.regions[0].blocks[0]
    end = terminator_of(block)
    combine, mine = made_by(end.operands[number], *_NEUTRAL), running[number]
    start = _start(list(op.operands)[len(op.operands) - len(op.results) + number])
    if combine is None or start is None:
        return None
    sides = list(combine.operands)
    if sum(s == mine for s in sides) != 1 or any(len(list(r.uses)) != 1 for r in running):
        return None
    element = sides[0] if sides[1] == mine else sides[1]
    return Reduction(combine, element, start)


def _start(value: ir.Value) -> ir.Attribute | None:
    """The constant that a tensor is filled with, None for other tensors."""
    fill = made_by(value, "linalg.fill")
    return None if fill is None else scalar_constant(fill.operands[0])


def narrow_view(op: OpLike, rank: int) -> bool:
    """Whether the op reshapes `[M..]` to `[M.., 1]`, or the reverse."""
    if op.name not in _RESHAPES:
        return False
    kinds = [ir.RankedTensorType(v.type) for v in (op.operands[0], op.results[0])]
    short, long = sorted(kinds, key=lambda k: k.rank)
    return (
        short.rank == rank and long.rank == rank + 1 and not long.is_dynamic_dim(rank) and long.get_dim_size(rank) == 1
    )


# ------------------------------------------------------------------------------------------------------ groups


class _Group:
    def __init__(self, space: Space) -> None:
        self.space = space
        self.steps: list[RowStep] = []
        self.views: list[tuple[ir.Value, ir.Value]] = []
        self.operations: list[OpLike] = []
        self.behind: set[_Group] = set()  # groups whose results it needs, directly or through other ops
        self.kinds: dict[ir.Value, str] = {}  # the kind of each value

    def reads(self, found: Iterable[tuple[ir.Value, str]]) -> bool:
        """Record the kinds of values; return whether they agree with earlier uses in the group. If there are as many
        rows as columns, an `[M]` may have one element per row for one step and one per column for another."""
        kinds = dict(self.kinds)
        if any(kinds.setdefault(value, how) != how for value, how in found):
            return False
        self.kinds = kinds
        return True

    def take(self, step: RowStep) -> bool:
        """Take in the step if it fits; return whether it did."""
        made = [(v, step.result) for v in step.op.results]
        if not self.reads([*zip(step.inputs, step.sources, strict=True), *made]):
            return False
        self.steps.append(step)
        return True


def find(block: ir.Block, least_width: int) -> list[RowGroup]:
    """The groups of a block with at least one reduction, formed so that each can be one dispatch."""
    made: dict[ir.Value, _Group] = {}  # value -> the group that makes it
    needs: dict[ir.Value, frozenset[_Group]] = {}  # other values -> groups that they depend on
    groups: list[_Group] = []
    for op in operations_of(block):
        around = read_by(op)
        candidates = list(dict.fromkeys(made[v] for v in reversed(around) if v in made))
        group = next((g for g in candidates if _joins(g, op, around, made, needs)), None)
        if group is None:
            group = _begins(op, around, made, needs, least_width)
            if group is not None:
                groups.append(group)
        if group is None:
            behind = _behind(around, made, needs)
            needs.update(dict.fromkeys(op.results, behind))
        else:
            made.update(dict.fromkeys(op.results, group))
    return [_closed(g) for g in groups if any(s.reductions for s in g.steps)]


def _behind(
    values: Sequence[ir.Value], made: dict[ir.Value, _Group], needs: dict[ir.Value, frozenset[_Group]]
) -> frozenset[_Group]:
    return frozenset(g for v in values for g in ((made[v],) if v in made else needs.get(v, ())))


def _all_behind(groups: frozenset[_Group]) -> set[_Group]:
    found: set[_Group] = set()
    left = list(groups)
    while left:
        group = left.pop()
        if group not in found:
            found.add(group)
            left.extend(group.behind)
    return found


def _joins(
    group: _Group,
    op: OpLike,
    around: Sequence[ir.Value],
    made: dict[ir.Value, _Group],
    needs: dict[ir.Value, frozenset[_Group]],
) -> bool:
    """Take the op into the group if it fits and none of its other operands depends on the group."""
    others = _behind([v for v in around if made.get(v) is not group], made, needs)
    if group in _all_behind(others):
        return False
    if narrow_view(op, len(group.space.rows)):
        if not group.reads([(op.operands[0], NARROW), (op.results[0], NARROW)]):
            return False
        group.views.append((op.results[0], op.operands[0]))
    else:
        found = classify(op, group.space)
        if found is None or not group.take(found[1]):
            return False
    group.operations.append(op)
    group.behind |= others
    return True


def _begins(
    op: OpLike,
    around: Sequence[ir.Value],
    made: dict[ir.Value, _Group],
    needs: dict[ir.Value, frozenset[_Group]],
    least_width: int,
) -> _Group | None:
    found = classify(op)
    if found is None or found[0].width < least_width or not (found[1].reductions or WIDE in found[1].sources):
        return None
    group = _Group(found[0])
    if not group.take(found[1]):
        return None
    group.operations.append(op)
    group.behind |= _behind(around, made, needs)
    return group


def _closed(group: _Group) -> RowGroup:
    """The finished group, without reshapes that only other ops read."""
    views = list(group.views)
    while unread := [v for v in views if not any(_within(use, group.operations) for use in v[0].uses)]:
        for view in unread:  # only ops outside of the group read it
            views.remove(view)
            group.operations.remove(defining_op(view[0]))
    inside = group.operations
    kinds = {v: s.result for s in group.steps for v in s.op.results} | {v: NARROW for v, _ in views}
    leaving = [v for op in inside for v in op.results if any(not _within(use, inside) for use in v.uses)]
    return RowGroup(group.space, tuple(group.steps), tuple(views), tuple((v, kinds[v]) for v in leaving), tuple(inside))


def _within(use: ir.OpOperand, operations: Sequence[OpLike]) -> bool:
    return use.owner.operation in operations
