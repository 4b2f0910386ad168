"""Gather rows that belong to groups into blocks with rows of one group each.

The block-aligned form is that of the MoE kernels of vLLM and AITER (`moe_align_block_size`): every block is a
dense tile for the target's matrix instructions. With R rows, G groups and blocks of B rows there are at most
`min(R, ceil(R/B) + G - 1)` blocks that hold a row, which bounds the (static) number of blocks.

Rows are sorted by counting: no loop carries a value and nothing is scattered, so every step is a linalg generic that
runs on every target. Rows are cut into chunks. A row's rank is the number of rows of its group in earlier chunks plus
the number before it in its own chunk. The inverse lookup finds the chunk, then the row in it. With chunks of about
sqrt(R) rows that is O(R * (sqrt(R) + G)) steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ....core.mlir import arith, ir, tensor
from ....dialect.shapes import block_count
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import Arg, Extent, as_index, dims, elementwise, filled, generic, index, loop_index, scalar
from ....ir.checks import assert_that, outside, refuse
from ....ir.facts import BACK, BLOCK_OF, CLAMPS, ENDED_BLOCKS, GATHER, PRESENT, ROW_OF, SLOT_OF, FactValue
from ....ir.scalars import i32, to_i32
from ....ir.walk import defining_op

_SLT, _SLE, _EQ, _SGE = (getattr(arith.CmpIPredicate, n) for n in ("slt", "sle", "eq", "sge"))


# ------------------------------------------------------------------------------------------------- small tools


def as_i32(value: ir.Value) -> ir.Value:
    """An integer tensor with i32 elements; wider ones saturate."""
    t = value.type.element_type
    if t == i32():
        return value
    sizes = dims(value)

    def narrow(x: ir.Value) -> ir.Value:
        if t.width > 32:
            x = arith.maxsi(arith.minsi(x, scalar(2**31 - 1, t)), scalar(-(2**31), t))
        return to_i32(x)

    return elementwise([Arg.aligned(value, sizes)], sizes, i32(), narrow)


def constant(value: int) -> ir.Value:
    return scalar(value, i32())


def flag(condition: ir.Value) -> ir.Value:
    """The i1 `condition` as i32: 1 if it holds."""
    return arith.extui(i32(), condition)


def loop_i32(i: int) -> ir.Value:
    """The running index of loop `i`, i32."""
    return arith.index_cast(i32(), loop_index(i))


def _size(size: Extent) -> ir.Value:
    """A size inside a body, i32."""
    return constant(size) if isinstance(size, int) else arith.index_cast(i32(), size)


def count(
    args: list[Arg],
    sizes: list[Extent],
    out: list[int],
    body: Callable[..., ir.Value],
    facts: Mapping[str, FactValue] | None = None,
) -> ir.Value:
    """i32 sums over all loops except `out`; `sizes` are the trip counts of the loops. `body` gets a function from a
    loop to its running index, and the operands' scalars.

    The summed loops are outermost: IREE's SPIR-V route makes inner ones a reduction across lanes, some sizes of which
    it does not legalise.
    """
    order = [i for i in range(len(sizes)) if i not in out] + out
    place = {loop: i for i, loop in enumerate(order)}
    moved = [Arg(a.value, tuple(None if x is None else place[x] for x in a.axes)) for a in args]
    init = filled([sizes[i] for i in out], constant(0))

    def step(*xs: ir.Value) -> ir.Value:
        return arith.addi(xs[-1], body(lambda i: loop_i32(place[i]), *xs[:-1]))

    return generic(moved, init, [place[i] for i in out], len(sizes), step, facts=facts)


def read(source: ir.Value, *where: ir.Value) -> ir.Value:
    """One element at i32 positions, inside a body."""
    return tensor.extract(source, [arith.index_cast(ir.IndexType.get(), w) for w in where])


def gather(source: ir.Value, rows: ir.Value) -> ir.Value:
    """`source [R, ...]` at `rows [..]` (i32) -> `[.., ...]`.

    A generic that reads by index, because `iree_linalg_ext.gather` gets no lowering configuration on Vulkan.
    """
    depth = rows.type.rank
    sizes = [*dims(rows), *dims(source)[1:]]

    def body(row: ir.Value) -> ir.Value:
        at = arith.index_cast(ir.IndexType.get(), row)
        inner = (index(0) if sizes[i] == 1 else loop_index(i) for i in range(depth, len(sizes)))
        return tensor.extract(source, [at, *inner])

    arg = Arg(rows, tuple(range(depth)))
    return elementwise([arg], sizes, source.type.element_type, body, facts={GATHER: PRESENT})


def bounded(x: ir.Value, size: int) -> ir.Value:
    """An i32 clamped to `[0, size)`, so that a read at it stays in bounds."""
    return arith.maxsi(arith.minsi(x, constant(size - 1)), constant(0))


def names_a_group(owner: ir.Value, groups: int) -> ir.Value:
    """Whether an i32 lies in `[0, groups)`."""
    return arith.andi(arith.cmpi(_SGE, owner, constant(0)), arith.cmpi(_SLT, owner, constant(groups)))


def _before(sizes: ir.Value, groups: int) -> ir.Value:
    """Exclusive prefix sums, `[G]`."""
    return count([Arg(sizes, (1,))], [groups, groups], [0],
                 lambda at, s: arith.select(arith.cmpi(_SLT, at(1), at(0)), s, constant(0)))  # fmt: skip


# ------------------------------------------------------------------------------------------------------ routing


class RowRouting(Protocol):
    """The group that each row belongs to, and its place in that group."""

    rows: Extent
    groups: int
    owner: ir.Value  # [R] i32: the group; outside [0, G) for rows that belong to no group
    position: ir.Value  # [R] i32: the row's place in its group
    sizes: ir.Value  # [G] i32

    def find(self, group: ir.Value, place: ir.Value) -> ir.Value:
        """The rows `[NB, B]` at places `[NB, B]` of groups `[NB]`; any value in [0, R) for a place without a row."""


class Sorted:
    """Rows sorted by group; the sizes of the groups are given."""

    def __init__(self, sizes: ir.Value, rows: Extent, groups: int) -> None:
        self.rows, self.groups, self.sizes = rows, groups, sizes
        self._assert_sizes()
        self._start = start = fusion_barrier(_before(sizes, groups), Reason.INDEXED_READS)
        # The owner is the number of groups that end at or before the row.
        self.owner = count([Arg(start, (1,)), Arg(sizes, (1,))], [rows, groups], [0],
                           lambda at, s, n: flag(arith.cmpi(_SLE, arith.addi(s, n), at(0))))  # fmt: skip
        self.position = elementwise([Arg(self.owner, (0,))], [rows], i32(),
                                    lambda o: arith.subi(loop_i32(0), read(start, bounded(o, groups))))  # fmt: skip

    def _assert_sizes(self) -> None:
        """Check that sizes are not negative and add up to the row count: otherwise rows would have no result."""
        total = generic([Arg(self.sizes, (0,))], filled([], constant(0)), [], 1, lambda s, acc: arith.addi(acc, s))
        least = generic([Arg(self.sizes, (0,))], filled([], constant(0)), [], 1, lambda s, acc: arith.minsi(acc, s))
        expected = arith.index_cast(i32(), as_index(self.rows))
        fits = arith.cmpi(_EQ, tensor.extract(total, []), expected)
        positive = arith.cmpi(_EQ, tensor.extract(least, []), constant(0))
        assert_that(
            arith.andi(fits, positive), "group_sizes must be non-negative and add up to the number of rows of lhs"
        )

    def find(self, group: ir.Value, place: ir.Value) -> ir.Value:
        def row(g: ir.Value, p: ir.Value) -> ir.Value:
            last = arith.subi(_size(self.rows), constant(1))
            return arith.maxsi(arith.minsi(arith.addi(read(self._start, g), p), last), constant(0))

        return elementwise([Arg(group, (0,)), Arg(place, (0, 1))], dims(place), i32(), row)


class Ranked:
    """Rows in any order; the group of each row is given."""

    def __init__(self, owner: ir.Value, rows: Extent, groups: int) -> None:
        self.rows, self.groups, self.owner = rows, groups, owner
        self._width = width = _chunk_width(rows)
        self._chunks = chunks = _chunk_count(rows, width)
        # The owners by chunk; -1 past the last row.
        self._table = fusion_barrier(elementwise([], [chunks, width], i32(), self._owner_or_none), Reason.INDEXED_READS)
        in_chunk = count([Arg(self._table, (0, 2))], [chunks, groups, width], [0, 1],
                         lambda at, o: flag(arith.cmpi(_EQ, o, at(1))))  # fmt: skip
        sizes = count([Arg(in_chunk, (0, 1))], [chunks, groups], [1], lambda at, n: n)
        self.sizes = fusion_barrier(sizes, Reason.INDEXED_READS)
        before = count([Arg(in_chunk, (2, 1))], [chunks, groups, chunks], [0, 1],
                       lambda at, n: arith.select(arith.cmpi(_SLT, at(2), at(0)), n, constant(0)))  # fmt: skip
        self._before = fusion_barrier(before, Reason.INDEXED_READS)

        def earlier(at: Callable[[int], ir.Value], mine: ir.Value, other: ir.Value) -> ir.Value:
            return flag(arith.andi(arith.cmpi(_EQ, mine, other), arith.cmpi(_SLT, at(2), at(1))))

        local = count([Arg(self._table, (0, 1)), Arg(self._table, (0, 2))], [chunks, width, width], [0, 1], earlier)
        self._local = fusion_barrier(local, Reason.INDEXED_READS)

        def place(o: ir.Value) -> ir.Value:
            chunk, inside = (f(loop_i32(0), constant(width)) for f in (arith.divsi, arith.remsi))
            return arith.addi(read(self._before, chunk, bounded(o, groups)), read(self._local, chunk, inside))

        self.position = elementwise([Arg(owner, (0,))], [rows], i32(), place)

    def _owner_or_none(self) -> ir.Value:
        row = arith.addi(arith.muli(loop_i32(0), constant(self._width)), loop_i32(1))
        last = arith.subi(_size(self.rows), constant(1))
        owner = read(self.owner, arith.minsi(row, last))
        return arith.select(arith.cmpi(_SLE, row, last), owner, constant(-1))

    def find(self, group: ir.Value, place: ir.Value) -> ir.Value:
        blocks, width = dims(place)
        # The place in the block's group at which each chunk's rows start.
        start = elementwise(
            [Arg(group, (0,))], [blocks, self._chunks], i32(), lambda g: read(self._before, loop_i32(1), g)
        )
        # The place's chunk is the last one that starts at or before it.
        after = count([Arg(start, (0, 2)), Arg(place, (0, 1))], [blocks, width, self._chunks], [0, 1],
                      lambda at, s, p: flag(arith.cmpi(_SLE, s, p)))  # fmt: skip
        chunk = elementwise([Arg(after, (0, 1))], [blocks, width], i32(), lambda n: arith.maxsi(
            arith.subi(n, constant(1)), constant(0)))  # fmt: skip

        def hit(c: ir.Value, g: ir.Value, p: ir.Value) -> ir.Value:
            inside = arith.subi(p, read(self._before, c, g))
            mine = arith.cmpi(_EQ, read(self._table, c, loop_i32(2)), g)
            return flag(arith.andi(mine, arith.cmpi(_EQ, read(self._local, c, loop_i32(2)), inside)))

        args = [Arg(chunk, (0, 1)), Arg(group, (0,)), Arg(place, (0, 1))]
        hits = fusion_barrier(elementwise(args, [blocks, width, self._width], i32(), hit), Reason.INDEXED_READS)

        def row(at: Callable[[int], ir.Value], h: ir.Value, c: ir.Value) -> ir.Value:
            return arith.muli(h, arith.addi(arith.muli(c, constant(self._width)), at(2)))

        return count([Arg(hits, (0, 1, 2)), Arg(chunk, (0, 1))], [blocks, width, self._width], [0, 1], row)


def _chunk_width(rows: Extent) -> int:
    """The power of two at or above the square root of the row count, from 8 to 128; 64 if that is dynamic."""
    if not isinstance(rows, int):
        return 64
    width = 8
    while width < 128 and width * width < rows:
        width *= 2
    return width


def _chunk_count(rows: Extent, width: int) -> Extent:
    return -(-rows // width) if isinstance(rows, int) else arith.ceildivsi(rows, index(width))


# ------------------------------------------------------------------------------------------------------- blocks


class RowBlocks:
    """The tables of rows in blocks: `row_of [NB, B]` (row of each slot; any row if it is empty), `group_of [NB]` (any
    group for unused blocks), and for the inverse direction `block_of [R]` and `slot_of [R]`."""

    def __init__(self, routing: RowRouting, width: int | None = None) -> None:
        self.routing = routing
        rows, groups = routing.rows, routing.groups
        # Tables that the program requests, with a width, have the size that it expects. Products have at least two
        # blocks: an axis of one would fold away, and strategies would not recognise the product as a batch.
        least = 0 if width else 2
        self.width = width = width or _block_width(rows, groups)
        self.count = _block_count(rows, groups, width, least)
        per_group = elementwise([Arg(routing.sizes, (0,))], [groups], i32(),
                                lambda s: arith.ceildivsi(s, constant(width)))  # fmt: skip
        start = fusion_barrier(_before(per_group, groups), Reason.INDEXED_READS)
        ends = count([Arg(start, (1,)), Arg(per_group, (1,))], [self.count, groups], [0],
                     lambda at, s, n: flag(arith.cmpi(_SLE, arith.addi(s, n), at(0))),
                     {ENDED_BLOCKS: width})  # fmt: skip
        self.used = count([Arg(per_group, (0,))], [groups], [], lambda at, n: n)
        self.group_of = elementwise(
            [Arg(ends, (0,))], [self.count], i32(), lambda g: bounded(g, groups), facts={CLAMPS: (0, groups - 1)}
        )
        self.block_of = elementwise(
            [Arg(routing.owner, (0,)), Arg(routing.position, (0,))], [rows], i32(),
            lambda o, p: arith.addi(read(start, bounded(o, groups)), arith.divsi(p, constant(width))),
            facts={BLOCK_OF: int(isinstance(routing, Sorted))},
        )  # fmt: skip
        self.slot_of = elementwise(
            [Arg(routing.position, (0,))], [rows], i32(), lambda p: arith.remsi(p, constant(width)),
            facts={SLOT_OF: PRESENT},
        )  # fmt: skip
        self.place_of = elementwise(
            [Arg(self.group_of, (0,))], [self.count, width], i32(),
            lambda g: arith.addi(arith.muli(arith.subi(loop_i32(0), read(start, g)), constant(width)), loop_i32(1)),
        )  # fmt: skip
        self.row_of = fusion_barrier(routing.find(self.group_of, self.place_of), Reason.INDEXED_READS)
        defining_op(self.row_of).attributes[ROW_OF] = ir.UnitAttr.get()

    def rows_of(self, value: ir.Value) -> ir.Value:
        """`[R, ...]` to `[NB, B, ...]`."""
        rows = gather(value, self.row_of)
        return fusion_barrier(rows, Reason.ONE_ROW) if dims(value)[0] == 1 else rows

    def weights_of(self, value: ir.Value) -> ir.Value:
        """`[G, ...]` to `[NB, ...]`."""
        return gather(value, self.group_of)

    def back(self, y: ir.Value, skipped: ir.Value | None) -> ir.Value:
        """`[NB, B, N]` to `[R, N]`; rows without an owner get the scalar `skipped`."""
        return elementwise(
            [], [self.routing.rows, dims(y)[2]], y.type.element_type,
            lambda: self.value_back(y, skipped, loop_index(0), loop_index(1)),
            facts={BACK: PRESENT} if skipped is None else None,
        )  # fmt: skip

    def value_back(self, y: ir.Value, skipped: ir.Value | None, row: ir.Value, column: ir.Value) -> ir.Value:
        """One element of the result of `back`, inside a body. Block and slot are read by the row's index, not as
        operands of the body: then IREE sees that adjacent elements of a row of `y` are read, and loads vectors."""
        at = [arith.index_cast(ir.IndexType.get(), tensor.extract(t, [row])) for t in (self.block_of, self.slot_of)]
        value = tensor.extract(y, [*at, column])
        if skipped is None:
            return value
        owner = tensor.extract(self.routing.owner, [row])
        return arith.select(names_a_group(owner, self.routing.groups), value, skipped)

    def padded_rows(self, none: ir.Value) -> ir.Value:
        """`row_of`, with the i32 `none` for empty slots, `[NB, B]`."""

        def body(row: ir.Value, group: ir.Value, place: ir.Value) -> ir.Value:
            return arith.select(arith.cmpi(_SLT, place, read(self.routing.sizes, group)), row, none)

        args = [Arg(self.row_of, (0, 1)), Arg(self.group_of, (0,)), Arg(self.place_of, (0, 1))]
        return elementwise(args, [self.count, self.width], i32(), body)

    def padded_groups(self) -> ir.Value:
        """`group_of`, with -1 for unused blocks, `[NB]`."""

        def body(group: ir.Value, used: ir.Value) -> ir.Value:
            return arith.select(arith.cmpi(_SLT, loop_i32(0), used), group, constant(-1))

        return elementwise([Arg(self.group_of, (0,)), Arg(self.used, ())], [self.count], i32(), body)


def _block_width(rows: Extent, groups: int) -> int:
    """Rows per block: the power of two at or above the mean group size, from 8 to 64; 32 if rows are dynamic."""
    if not isinstance(rows, int):
        return 32
    width = 8
    while width < 64 and width * groups < rows:
        width *= 2
    return width


def _block_count(rows: Extent, groups: int, width: int, least: int) -> Extent:
    if isinstance(rows, int):
        return max(least, block_count(rows, groups, width) or 0)
    bound = arith.addi(arith.ceildivsi(rows, index(width)), index(groups - 1))
    return arith.minsi(rows, bound)


def assert_ids(ids: ir.Value, groups: int) -> None:
    """Check that every id of `[T, topk]` names an expert. The message says which argument of the function the ids are,
    so that the runtime can find the first invalid one."""
    refuse([Arg(as_i32(ids), (0, 1))], 2, lambda o: outside(o, 0, groups - 1),
           f"an id of {_described(ids)} is outside [0, {groups})")  # fmt: skip


def _described(ids: ir.Value) -> str:
    """The name of the ids in a message, with the argument's number if they are an argument of a public function."""
    owner = ids.owner
    if not isinstance(owner, ir.Block) or "sym_visibility" in owner.owner.attributes:
        return "expert_ids"
    return f"expert_ids (argument {ir.BlockArgument(ids).arg_number})"
