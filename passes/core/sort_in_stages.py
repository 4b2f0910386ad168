"""qmlir-sort-in-stages: sort long axes by a network, every stage of which compares all pairs at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...core.mlir import OpLike, arith, ir, tensor
from ...ir.attributes import axis_of
from ...ir.barriers import Reason, fusion_barrier, opaque
from ...ir.build import Arg, Extent, crop, dims, empty, generics, index, inlined, loop_index
from ...ir.scalars import i32
from ...ir.walk import collect
from ..base import Pass, State

_EQUAL = arith.CmpIPredicate.eq


@dataclass(frozen=True)
class SortInStagesPass(Pass):
    """Makes a bitonic network (Batcher, "Sorting networks and their applications", 1968) of each sort along an axis of
    `shortest` elements or more, and of `fewest` where the tensor has `many` or more: of n elements,
    log2(n) (log2(n) + 1) / 2 stages.

    IREE exchanges neighbours that are out of order until none are, which takes n^2 steps, on a GPU of one thread for
    each line. A stage is one op over all elements, and all stages are one kernel: how far apart it compares is an
    operand. Elements that the comparison does not tell apart stay in their order, because their places are sorted with
    them; behind the last element stand places that go behind all others, up to a power of two.

    Sorts along an axis of a dynamic size stay as they are.
    """

    name: ClassVar[str] = "qmlir-sort-in-stages"
    summary: ClassVar[str] = "sort long axes by a network"
    shortest: int = 128
    fewest: int = 16  # routers choose among so many experts, for each of many tokens
    many: int = 512

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "iree_linalg_ext.sort"):
            axis = axis_of(op)
            if not self._pays(dims(op.operands[0]), axis):
                continue
            with op.location, ir.InsertionPoint(op):
                found = _Network(op, axis).sorted()
            for result, value in zip(op.results, found, strict=True):
                result.replace_all_uses_with(value)
            op.operation.erase()

    def _pays(self, sizes: Sequence[Extent], axis: int) -> bool:
        count = sizes[axis]
        if not isinstance(count, int):
            return False
        static = [size for size in sizes if isinstance(size, int)]
        is_many = len(static) < len(sizes) or math.prod(static) >= self.many
        return count >= self.shortest or (count >= self.fewest and is_many)


class _Network:
    """The network of one sort."""

    def __init__(self, op: OpLike, axis: int) -> None:
        self.op, self.axis = op, axis
        self.sizes = dims(op.operands[0])
        self.count = ir.RankedTensorType(op.operands[0].type).shape[axis]
        self.whole = 1 << (self.count - 1).bit_length()
        self.padded = [self.whole if i == axis else size for i, size in enumerate(self.sizes)]
        self.axes = range(len(self.sizes))

    def sorted(self) -> list[ir.Value]:
        lines = self._start()
        span = 2
        while span <= self.whole:
            reach = span // 2
            while reach:
                lines = self._stage(lines, span, reach)
                reach //= 2
            span *= 2
        return [crop(line, [0] * len(self.sizes), self.sizes) for line in lines[:-1]]

    def _places(self, at: ir.Value) -> list[ir.Value]:
        return [at if i == self.axis else loop_index(i) for i in self.axes]

    def _start(self) -> list[ir.Value]:
        """The operands, the last element once more behind them, and each element's place."""
        stored = [fusion_barrier(x, Reason.SORT_STAGE) for x in self.op.operands]

        def body(*_: ir.Value) -> list[ir.Value]:
            at = loop_index(self.axis)
            places = self._places(arith.minui(at, index(self.count - 1)))
            return [*(tensor.extract(x, places) for x in stored), arith.index_cast(i32(), at)]

        kinds = [*(x.type.element_type for x in stored), i32()]
        return generics([], [empty(self.padded, kind) for kind in kinds], self.axes, len(self.axes), body)

    def _stage(self, lines: Sequence[ir.Value], span: int, reach: int) -> list[ir.Value]:
        """Compare each element with the one at `place ^ reach`. Runs of `span` elements become ascending and descending
        in turn."""
        stored = [fusion_barrier(line, Reason.SORT_STAGE) for line in lines]
        run, distance = (opaque(arith.constant(i32(), number)) for number in (span, reach))

        def body(*scalars: ir.Value) -> list[ir.Value]:
            mine, at = scalars[: len(stored)], arith.index_cast(i32(), loop_index(self.axis))
            partner = arith.index_cast(ir.IndexType.get(), arith.xori(at, distance))
            theirs = [tensor.extract(x, self._places(partner)) for x in stored]
            is_lower, is_ascending = (_has_no(at, bit) for bit in (distance, run))
            takes_first = arith.cmpi(_EQUAL, is_lower, is_ascending)
            stays = arith.cmpi(_EQUAL, self._before(mine, theirs), takes_first)
            return [arith.select(stays, a, b) for a, b in zip(mine, theirs, strict=True)]

        outs = [empty(self.padded, line.type.element_type) for line in lines]
        return generics([Arg(x, tuple(self.axes)) for x in stored], outs, self.axes, len(self.axes), body)

    def _before(self, a: Sequence[ir.Value], b: Sequence[ir.Value]) -> ir.Value:
        """Whether the elements `a` go before `b`, an i1. The last ones are their places."""
        *left, place = a
        *right, other = b
        compare = self.op.regions[0].blocks[0]
        first, second = (
            inlined(compare, [v for pair in zip(*sides, strict=True) for v in pair])
            for sides in ((left, right), (right, left))
        )
        earlier = arith.cmpi(arith.CmpIPredicate.slt, place, other)
        ahead = arith.select(arith.cmpi(_EQUAL, first, second), earlier, first)
        if self.whole == self.count:
            return ahead
        behind = arith.cmpi(arith.CmpIPredicate.sge, arith.maxsi(place, other), arith.constant(i32(), self.count))
        return arith.select(behind, earlier, ahead)


def _has_no(number: ir.Value, bit: ir.Value) -> ir.Value:
    return arith.cmpi(_EQUAL, arith.andi(number, bit), arith.constant(i32(), 0))
