"""qmlir-sort-in-stages: sort long axes by a bitonic network, each stage of which compares all pairs in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ...core.mlir import OpLike, arith, ir, math, scf, tensor
from ...ir.attributes import axis_of
from ...ir.barriers import Reason, fusion_barrier, opaque
from ...ir.build import Arg, Extent, as_index, crop, dims, empty, generic, index, inlined, loop_index, scalar
from ...ir.scalars import i32
from ...ir.walk import collect
from ..base import Pass, State

_EQUAL = arith.CmpIPredicate.eq


@dataclass(frozen=True)
class SortInStagesPass(Pass):
    """Replaces each sort along an axis of `shortest` elements or more (`fewest` if the tensor has `many` or more) with
    a bitonic network (Batcher, "Sorting networks and their applications", 1968). For n elements it has
    log2(n) (log2(n) + 1) / 2 stages.

    IREE exchanges neighbours that are out of order until none are, which takes n^2 steps, on a GPU in one thread per
    line. The network sorts the positions of the elements. A stage is one op over all positions, and all stages are one
    kernel, because the distance between compared elements is an operand. Elements that compare as equal keep their
    order, because their positions are compared then. Positions are padded to a power of two; the padding stays last.

    If the size is dynamic, the stages are loops.
    """

    name: ClassVar[str] = "qmlir-sort-in-stages"
    summary: ClassVar[str] = "sort long axes with a bitonic network"
    shortest: int = 128
    fewest: int = 16  # a router sorts this many experts, for each of many tokens
    many: int = 512

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "iree_linalg_ext.sort"):
            axis = axis_of(op)
            if not self._pays(ir.RankedTensorType(op.operands[0].type), axis):
                continue
            with op.location, ir.InsertionPoint(op):
                found = _Network(op, axis).sorted()
            for result, value in zip(op.results, found, strict=True):
                result.replace_all_uses_with(value)
            op.operation.erase()

    def _pays(self, t: ir.RankedTensorType, axis: int) -> bool:
        if t.is_dynamic_dim(axis):
            return True
        count = t.shape[axis]
        is_many = not t.has_static_shape or prod(t.shape) >= self.many
        return count >= (self.fewest if is_many else self.shortest)


class _Network:
    """The network of one sort."""

    def __init__(self, op: OpLike, axis: int) -> None:
        self.op, self.axis = op, axis
        self.sizes = dims(op.operands[0])
        self.count = self.sizes[axis]
        # How often the length of sorted runs doubles until one run is left.
        self.doublings: Extent
        self.whole: Extent
        if isinstance(self.count, int):
            self.doublings = (self.count - 1).bit_length()
            self.whole = 1 << self.doublings
        else:
            # At least two positions: IREE frees a value twice if it passes through a loop of no iterations.
            last = arith.index_cast(i32(), arith.subi(arith.maxsi(self.count, index(2)), index(1)))
            bits = arith.subi(arith.constant(i32(), 32), math.ctlz(last))
            self.doublings = arith.index_cast(ir.IndexType.get(), bits)
            self.whole = arith.shli(index(1), self.doublings)
        self.padded = [self.whole if i == axis else size for i, size in enumerate(self.sizes)]
        self.axes = range(len(self.sizes))

    def sorted(self) -> list[ir.Value]:
        keys = [fusion_barrier(x, Reason.SORT_STAGE, self.sizes) for x in self.op.operands]
        places = generic([], empty(self.padded, i32()), self.axes, len(self.axes),
                         lambda _: arith.index_cast(i32(), loop_index(self.axis)))  # fmt: skip
        if isinstance(self.doublings, int):
            for doubling in range(self.doublings):
                for halving in range(doubling + 1):
                    span, reach = 2 << doubling, 1 << doubling >> halving
                    places = self._stage(keys, places, *(opaque(arith.constant(i32(), x)) for x in (span, reach)))
        else:
            places = self._loops(keys, fusion_barrier(places, Reason.LOOP_START, self.padded))
        order = Arg(crop(fusion_barrier(places, Reason.SORT_STAGE, self.padded), [0] * len(self.sizes), self.sizes),
                    tuple(self.axes))  # fmt: skip
        return [generic([order], empty(self.sizes, x.type.element_type), self.axes, len(self.axes),
                        lambda place, _, x=x: tensor.extract(x, self._at(place))) for x in keys]  # fmt: skip

    def _loops(self, keys: Sequence[ir.Value], places: ir.Value) -> ir.Value:
        doublings = scf.ForOp(index(0), as_index(self.doublings), index(1), [places])
        with ir.InsertionPoint(doublings.body):
            doubling = doublings.induction_variable
            half = arith.shli(arith.constant(i32(), 1), arith.index_cast(i32(), doubling))
            halvings = scf.ForOp(index(0), arith.addi(doubling, index(1)), index(1), doublings.inner_iter_args)
            with ir.InsertionPoint(halvings.body):
                reach = arith.shrui(half, arith.index_cast(i32(), halvings.induction_variable))
                [places] = halvings.inner_iter_args
                scf.YieldOp([self._stage(keys, places, arith.addi(half, half), reach)])
            scf.YieldOp(list(halvings.results))
        return doublings.results[0]

    def _at(self, place: ir.Value) -> list[ir.Value]:
        """The indices of a position in the line of the current loop iteration."""
        at = arith.index_cast(ir.IndexType.get(), place)
        return [at if i == self.axis else loop_index(i) for i in self.axes]

    def _key(self, x: ir.Value, place: ir.Value) -> ir.Value:
        """The element at a position; zero if an axis of dynamic size is empty, where nothing can be read."""
        at = self._at(place)
        if isinstance(self.count, int):
            return tensor.extract(x, at)
        kind = x.type.element_type
        found = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ne, self.count, index(0)), [kind], has_else=True)
        with ir.InsertionPoint(found.then_block):
            scf.YieldOp([tensor.extract(x, at)])
        with ir.InsertionPoint(found.else_block):
            scf.YieldOp([scalar(0, kind)])
        return found.results[0]

    def _stage(self, keys: Sequence[ir.Value], places: ir.Value, span: ir.Value, reach: ir.Value) -> ir.Value:
        """Compare each element with the one at `i ^ reach`. Runs of `span` elements alternate between ascending and
        descending order."""
        stored = fusion_barrier(places, Reason.SORT_STAGE, self.padded)

        def body(mine: ir.Value, _: ir.Value) -> ir.Value:
            at = arith.index_cast(i32(), loop_index(self.axis))
            theirs = tensor.extract(stored, self._at(arith.xori(at, reach)))
            is_lower, is_ascending = (_lacks_bit(at, bit) for bit in (reach, span))
            takes_first = arith.cmpi(_EQUAL, is_lower, is_ascending)
            stays = arith.cmpi(_EQUAL, self._before(keys, mine, theirs), takes_first)
            return arith.select(stays, mine, theirs)

        return generic([Arg(stored, tuple(self.axes))], empty(self.padded, i32()), self.axes, len(self.axes), body)

    def _before(self, keys: Sequence[ir.Value], place: ir.Value, other: ir.Value) -> ir.Value:
        """Whether the element at `place` sorts before the one at `other`, an i1."""
        compare = self.op.regions[0].blocks[0]
        both, count = (place, other), arith.index_cast(i32(), as_index(self.count))
        if self.whole != self.count:
            last = arith.subi(count, arith.constant(i32(), 1))
            both = arith.minsi(place, last), arith.minsi(other, last)
        left, right = ([self._key(x, at) for x in keys] for at in both)
        first, second = (
            inlined(compare, [v for pair in zip(*sides, strict=True) for v in pair])
            for sides in ((left, right), (right, left))
        )
        earlier = arith.cmpi(arith.CmpIPredicate.slt, place, other)
        ahead = arith.select(arith.cmpi(_EQUAL, first, second), earlier, first)
        if self.whole == self.count:
            return ahead
        behind = arith.cmpi(arith.CmpIPredicate.sge, arith.maxsi(place, other), count)
        return arith.select(behind, earlier, ahead)


def _lacks_bit(number: ir.Value, bit: ir.Value) -> ir.Value:
    return arith.cmpi(_EQUAL, arith.andi(number, bit), arith.constant(i32(), 0))
