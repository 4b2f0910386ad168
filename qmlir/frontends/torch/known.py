"""Fold operators on tensors with one value or with few elements, by torch.

torch-mlir folds them too, but wrongly: comparisons of a float with an integer (`torch.full([4], 0.7) < 0` is sometimes
true), remainders of negative numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from .graph import TorchGraph, aten, dtype_of, is_tensor, shape_of
from .simplify import MOVES

if TYPE_CHECKING:
    from torch._ops import OpOverload

_MAX_ELEMENTS = 64  # elements
# Operators that fill a tensor, and the index of the argument that is the value.
_FILLS: dict[OpOverload, int] = {
    aten.full.default: 1, aten.full_like.default: 1, aten.new_full.default: 2, aten.scalar_tensor.default: 0,
}  # fmt: skip
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
_ONES = (aten.ones.default, aten.ones_like.default, aten.new_ones.default)


def fold_known(graph: TorchGraph) -> None:
    """Replace elementwise operators on known tensors by a fill or a constant."""
    known: dict[Node, torch.Tensor] = {}  # all elements, or one in the node's rank if all are equal
    for node in graph.nodes:
        value = _known(graph, node, known)
        if value is None:
            continue
        known[node] = value
        if node.op == "call_function" and _pointwise(node):
            if value.numel() == 1:
                args = (list(shape_of(node)), value.item())
                made = graph.call(node, aten.full.default, args, {"dtype": value.dtype}, node.meta["val"])
            else:
                made = graph.new_constant(value, node)
            known[made] = value
            graph.replace(node, made)
    graph.clean()


def _known(graph: TorchGraph, node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor | None:
    if not is_tensor(node) or not all(isinstance(s, int) and s > 0 for s in shape_of(node)):
        return None
    if node.op == "get_attr":
        value = graph.constant(node)
        return value if value is not None and value.numel() <= _MAX_ELEMENTS else None
    if node.op != "call_function":
        return None
    one = [1] * len(shape_of(node))
    if (fill := _fill_value(node)) is not None:
        return torch.full(one, fill, dtype=dtype_of(node))
    tensors = [known[n] for n in node.all_input_nodes if n in known]
    if not tensors or len(tensors) < len(node.all_input_nodes):
        return None
    if node.target in MOVES:
        return tensors[0].reshape(one) if len(tensors) == 1 and tensors[0].numel() == 1 else None
    if not _pointwise(node):
        return None
    args, kwargs = torch.utils._pytree.tree_map_only(Node, known.__getitem__, (node.args, dict(node.kwargs)))
    with torch.no_grad():
        value = node.target(*args, **kwargs)
    whole = value.numel() == 1 or tuple(value.shape) == shape_of(node)
    return value if whole and value.dtype == dtype_of(node) else None


def _fill_value(node: Node) -> bool | int | float | None:
    """The value of a tensor that a node fills; None if it fills none."""
    if node.target in _ZEROS or node.target in _ONES:
        return int(node.target in _ONES)
    at = _FILLS.get(node.target)
    value = None if at is None else node.args[at]
    return value if isinstance(value, (bool, int, float)) else None


def _pointwise(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
