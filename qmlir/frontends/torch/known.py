"""Tensors of one value, or of few: what follows from them is computed here, by torch.

torch-mlir computes it too, and wrong: a float against an integer (`torch.full([4], 0.7) < 0` is true now and then), the
remainder of a negative number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from .graph import TorchGraph, aten, dtype_of, is_tensor, shape_of
from .simplify import MOVES

if TYPE_CHECKING:
    from torch._ops import OpOverload

_FEW = 64  # elements
# What fills a tensor, and which of its arguments says with what.
_FULL: dict[OpOverload, int] = {
    aten.full.default: 1, aten.full_like.default: 1, aten.new_full.default: 2, aten.scalar_tensor.default: 0,
}  # fmt: skip
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
_ONES = (aten.ones.default, aten.ones_like.default, aten.new_ones.default)


def fold_known(graph: TorchGraph) -> None:
    """Replaces what is computed of known tensors, element by element, by a tensor that is filled."""
    known: dict[Node, torch.Tensor] = {}  # one element of the node's rank, or all
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
        return value if value is not None and value.numel() <= _FEW else None
    if node.op != "call_function":
        return None
    one = [1] * len(shape_of(node))
    if (fill := _fill(node)) is not None:
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


def _fill(node: Node) -> bool | int | float | None:
    """The value of a tensor that a node fills."""
    if node.target in _ZEROS or node.target in _ONES:
        return int(node.target in _ONES)
    at = _FULL.get(node.target)
    value = None if at is None else node.args[at]
    return value if isinstance(value, (bool, int, float)) else None


def _pointwise(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
