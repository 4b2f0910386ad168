"""Affine maps and their expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..core.mlir import ir, linalg

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def indexing_maps(op: OpLike) -> list[ir.AffineMap]:
    """The maps of a linalg op, one for each operand."""
    return [attribute.value for attribute in linalg.get_indexing_maps(op)]


def downcast(e: ir.AffineExpr) -> ir.AffineExpr:
    """An affine expression as its concrete class; some versions of the bindings return the base class."""
    return e.maybe_downcast() if hasattr(e, "maybe_downcast") else e


def loops_of(e: ir.AffineExpr) -> list[int]:
    """The loops that occur in an expression."""
    e = downcast(e)
    if isinstance(e, ir.AffineDimExpr):
        return [e.position]
    return [] if isinstance(e, ir.AffineConstantExpr) else [*loops_of(e.lhs), *loops_of(e.rhs)]


def loop_sizes(operands: Iterable[ir.Value], maps: Iterable[ir.AffineMap]) -> dict[int, int]:
    """The static sizes of the loops that alone index an axis of an operand, by loop."""
    sizes: dict[int, int] = {}
    for value, each in zip(operands, maps, strict=True):
        kind = ir.ShapedType(value.type)
        for axis, expression in enumerate(each.results):
            if isinstance(expression, ir.AffineDimExpr) and not kind.is_dynamic_dim(axis):
                sizes[expression.position] = kind.get_dim_size(axis)
    return sizes


def in_order(m: ir.AffineMap, loops: Sequence[int]) -> ir.AffineMap:
    """The map over renumbered loops: the new loop `i` is the old loop `loops[i]`."""
    place = ir.AffineMap.get(len(loops), 0, [ir.AffineDimExpr.get(loops.index(i)) for i in range(len(loops))])
    return ir.AffineMap.get(len(loops), 0, [e.compose(place) for e in m.results])


def axis_loops(m: ir.AffineMap) -> list[int]:
    """The loop of each axis, for a map each of whose axes is indexed by one loop alone."""
    return [ir.AffineDimExpr(e).position for e in m.results]
