"""Indexed reads (`x[i, j]`) and writes (`x[i] = v`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from ...core.mlir import arith, tensor
from ...ir.build import Arg, Extent, as_index, dims, elementwise, loop_index, scalar
from .graph import TorchGraph, aten, dtype_of, is_tensor, mode_of, shape_of
from .rules import rule

_WRITES = frozenset((
    aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default, aten._index_put_impl.default,
))  # fmt: skip
if TYPE_CHECKING:
    import sympy

    from ...core.mlir import ir

_REWRITTEN = "qmlir_from_the_front"  # key in a node's meta: already rewritten


def count_from_the_front(graph: TorchGraph, node: Node) -> None:
    """Make negative indices of `index_put` non-negative (`i + size`), because torch-mlir writes them to wrong places,
    and convert indices to i64, the only type that it accepts. Masks are left alone."""
    if node.target not in _WRITES or node.meta.get(_REWRITTEN):
        return
    x, listed, *more = node.args
    places: list[Node | None] = list(listed)
    axis = 0
    for i, place in enumerate(places):
        if is_tensor(place) and dtype_of(place) in (torch.bool, torch.uint8):
            axis += len(shape_of(place))
            continue
        if place is not None:
            if dtype_of(place) is not torch.int64:
                value = place.meta["val"]
                wide = value.new_empty(value.shape, dtype=torch.int64)
                place = graph.call(node, aten.to.dtype, (place, torch.int64), {}, wide)
            places[i] = _non_negative(graph, node, place, x, axis)
        axis += 1
    node.args = (x, places, *more)
    node.meta[_REWRITTEN] = True


def _non_negative(graph: TorchGraph, node: Node, place: Node, x: Node, axis: int) -> Node:
    size = shape_of(x)[axis]
    known = graph.constant(place)
    if known is not None:
        if bool((known >= 0).all()):
            return place
        if isinstance(size, int):
            return graph.new_constant(torch.where(known < 0, known + size, known), node)
    value = place.meta["val"]
    count: Node | int = size
    if not isinstance(size, int):
        count = graph.call(node, aten.sym_size.int, (x, axis), {}, size)
    below = graph.call(node, aten.lt.Scalar, (place, 0), {}, value.new_empty(value.shape, dtype=torch.bool))
    moved = graph.call(node, aten.add.Scalar, (place, count), {}, value.new_empty(value.shape))
    return graph.call(node, aten.where.self, (below, moved, place), {}, value.new_empty(value.shape))


def index_by_known_masks(graph: TorchGraph) -> None:
    """Replace a selection by a constant mask (`x[mask]`, `masked_select`) by indexing with the positions where the mask
    is true, so that the number of selected elements is static."""
    env = getattr(mode_of(graph.gm.graph), "shape_env", None)
    counts: dict[sympy.Expr, int] = {}
    for node in graph.nodes:
        if node.target is aten.masked_select.default:
            x, mask = node.args
            if graph.constant(mask) is None or shape_of(x) != shape_of(mask):
                continue
            node.target, node.args = aten.index.Tensor, (x, [mask])
        if node.target is not aten.index.Tensor:
            continue
        places: list[Node | None] = []
        read = [n for n in (node.args[0], *node.args[1]) if is_tensor(n)]
        sizes = {s.node.expr for n in read for s in shape_of(n) if not isinstance(s, int)}
        for place in node.args[1]:
            known = graph.constant(place) if is_tensor(place) and dtype_of(place) in (torch.bool, torch.uint8) else None
            chosen = [place] if known is None else list(known.nonzero(as_tuple=True))
            places += chosen if known is None else [graph.new_constant(t, node) for t in chosen]
            if known is not None and env is not None:
                counts |= {s.node.expr: len(chosen[0]) for s in shape_of(node) if not isinstance(s, int)
                           and s.node.expr.is_Symbol and env.is_unbacked_symint(s.node.expr)
                           and s.node.expr not in sizes}  # fmt: skip
        node.args = (node.args[0], places)
    if counts and env is not None:
        env.replacements.update({size: size * 0 + count for size, count in counts.items()})
        env._update_version_counter()
        # This invalidates what torch has cached for its symbols.
        env._replacements_version_counter = getattr(env, "_replacements_version_counter", 0) + 1


def read_by_us(node: Node) -> bool:
    """Whether a node is a read that torch-mlir does not convert: by several indices with dynamic sizes, or by integers
    other than i64. Such a node is imported by `read`."""
    if node.target is not aten.index.Tensor:
        return False
    listed: Sequence[Node | None] = node.args[1]
    places = [p for p in listed if p is not None]
    sizes = [s for p in places for s in shape_of(p)]
    masks = any(dtype_of(p) in (torch.bool, torch.uint8) for p in places)
    wide = all(dtype_of(p) is torch.int64 for p in places)
    return bool(places) and not masks and not (wide and (len(places) == 1 or all(isinstance(s, int) for s in sizes)))


def read(x: ir.Value, places: Sequence[ir.Value | None]) -> ir.Value:
    """`x[i, j, ..]`: `places` holds an integer tensor for each leading axis of `x`, or None for the whole axis. The
    tensors broadcast; their axes replace the indexed axes if these are adjacent, otherwise they come first."""
    axes = [a for a, p in enumerate(places) if p is not None]
    given = [p for p in places if p is not None]
    rank = max(p.type.rank for p in given)
    sizes: list[Extent] = [1] * rank
    for p in given:
        for at, size in zip(range(rank - p.type.rank, rank), dims(p), strict=True):
            sizes[at] = size if sizes[at] == 1 else sizes[at]
    have = dims(x)
    others = [a for a in range(len(have)) if a not in axes]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    result = [*(have[a] for a in others[:first]), *sizes, *(have[a] for a in others[first:])]
    loop_of = {a: i if i < first else i + rank for i, a in enumerate(others)}
    args = []
    for p in given:
        loops = range(first + rank - p.type.rank, first + rank)
        args.append(Arg(p, tuple(None if s == 1 else at for s, at in zip(dims(p), loops, strict=True))))
    whole = {a: as_index(have[a]) for a in axes}

    def body(*numbers: ir.Value) -> ir.Value:
        at = [whole[a] if a in axes else loop_index(loop_of[a]) for a in range(len(have))]
        for a, number in zip(axes, numbers, strict=True):
            size = arith.index_cast(number.type, whole[a])
            below = arith.cmpi(arith.CmpIPredicate.slt, number, scalar(0, number.type))
            number = arith.select(below, arith.addi(number, size), number)
            at[a] = arith.index_cast(whole[a].type, number)
        return tensor.extract(x, at)

    return elementwise(args, result, x.type.element_type, body)


def _index_among_true(mask: torch.Tensor) -> torch.Tensor:
    """For each position of a flattened mask, the number of true positions up to and including it, minus one."""
    return mask.reshape(-1).to(torch.int64).cumsum(0) - 1


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def put_by_mask(
    x: torch.Tensor, listed: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """`x[mask] = values` with one mask, as a select: torch-mlir writes or adds values of several rows to wrong places.
    `values` is [.., count, rest] or broadcasts to it; the n-th true position gets the n-th value."""
    *before, mask = listed
    if mask is None or mask.dtype is not torch.bool or any(t is not None for t in before):
        return NotImplemented
    rest = x.dim() - len(before) - mask.dim()
    if values.dim() > rest:
        axis = values.dim() - rest - 1
        if values.shape[axis] != 1:
            number = _index_among_true(mask).clamp(0, values.shape[axis] - 1)
            values = values.index_select(axis, number).unflatten(axis, mask.shape)
        else:
            values = values.unflatten(axis, [1] * mask.dim())
    mask = mask.reshape(*mask.shape, *[1] * rest)
    return torch.where(mask, x + values if accumulate else values, x)


@rule(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with_reduction(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | float, *, reduce: str
) -> torch.Tensor:
    """Convert to the newer operator, `scatter_reduce`."""
    if not isinstance(source, torch.Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype)
    return aten.scatter_reduce.two(x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


@rule(aten.scatter_reduce.two)
def scatter_means(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> torch.Tensor:
    """`scatter_reduce` to the mean of integers, rounded down as in torch."""
    if reduce != "mean" or x.is_floating_point():
        return NotImplemented
    total = aten.scatter_reduce.two(x, dim, index, source, "sum", include_self=include_self)
    one = torch.ones_like(x)
    count = aten.scatter_reduce.two(one, dim, index, torch.ones_like(source), "sum", include_self=include_self)
    return torch.div(total, count, rounding_mode="floor")


@rule(aten.select_scatter.default)
def select_scatter(x: torch.Tensor, part: torch.Tensor, dim: int, index: torch.SymInt | int) -> torch.Tensor:
    """With an index counted from the end: if sizes are dynamic, torch-mlir leaves `x` unchanged."""
    if not isinstance(index, int) or index >= 0:
        return NotImplemented
    first = x.shape[dim] + index
    return aten.slice_scatter.default(x, part.unsqueeze(dim), dim, first, first + 1)


@rule(aten.masked_scatter.default)
def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """With dynamic or different sizes: the n-th true position takes the n-th element of `source`."""
    if x.shape == mask.shape and all(isinstance(n, int) for n in (*x.shape, *source.shape)):
        return NotImplemented
    sizes = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = x.expand(sizes), mask.expand(sizes)
    found = source.reshape(-1).index_select(0, _index_among_true(mask).clamp(min=0)).reshape(sizes)
    return torch.where(mask, found, x)


@rule(aten.diagonal_scatter.default)
def diagonal_scatter(
    x: torch.Tensor, part: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """Select the elements of `part` where the column is the row plus `offset`."""
    x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = torch.arange(x.shape[-2])[:, None], torch.arange(x.shape[-1])[None]
    place = (rows if offset >= 0 else columns).expand(x.shape[-2:]).clamp(max=max(part.shape[-1] - 1, 0))
    found = part.index_select(-1, place.reshape(-1)).reshape(x.shape)
    return torch.where(columns - rows == offset, found, x).movedim((-2, -1), (dim1, dim2))


@rule(aten.max_unpool2d.default, aten.max_unpool3d.default)
def max_unpool(x: torch.Tensor, indices: torch.Tensor, sizes: Sequence[int], *_: object) -> torch.Tensor:
    """Zeros with each value at its index, which counts within an image of `sizes`."""
    space = len(sizes)
    rows = [t.reshape(*t.shape[:-space], -1) for t in (x, indices)]
    nothing = torch.zeros([*x.shape[:-space], math.prod(sizes)], dtype=x.dtype)
    return nothing.scatter(-1, rows[1], rows[0]).reshape(*x.shape[:-space], *sizes)
