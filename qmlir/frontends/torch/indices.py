"""Elements written at computed places: `x[i] = v`."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from .graph import TorchGraph, aten, dtype_of, is_tensor, shape_of

_WRITES = frozenset((
    aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default, aten._index_put_impl.default,
))  # fmt: skip
_FROM_THE_FRONT = "qmlir_from_the_front"  # of a node's meta: has been seen


def count_from_the_front(graph: TorchGraph, node: Node) -> None:
    """`index_put` at places counted from the end, of which torch-mlir writes elsewhere: `i + size` where `i` is below
    0. Masks are left alone."""
    if node.target not in _WRITES or node.meta.get(_FROM_THE_FRONT):
        return
    x, listed, *more = node.args
    places: list[Any] = list(listed)
    axis = 0
    for i, place in enumerate(places):
        if is_tensor(place) and dtype_of(place) in (torch.bool, torch.uint8):
            axis += len(shape_of(place))
            continue
        if place is not None:
            places[i] = _counted(graph, node, place, x, axis)
        axis += 1
    node.args = (x, places, *more)
    node.meta[_FROM_THE_FRONT] = True


def _counted(graph: TorchGraph, node: Node, place: Node, x: Node, axis: int) -> Node:
    size = shape_of(x)[axis]
    known = graph.constant(place)
    if known is not None:
        if bool((known >= 0).all()):
            return place
        if isinstance(size, int):
            return graph.new_constant(torch.where(known < 0, known + size, known), node)
    value = place.meta["val"]
    count: Any = size
    if not isinstance(size, int):
        count = graph.call(node, aten.sym_size.int, (x, axis), {}, size)
    below = graph.call(node, aten.lt.Scalar, (place, 0), {}, value.new_empty(value.shape, dtype=torch.bool))
    moved = graph.call(node, aten.add.Scalar, (place, count), {}, value.new_empty(value.shape))
    return graph.call(node, aten.where.self, (below, moved, place), {}, value.new_empty(value.shape))
