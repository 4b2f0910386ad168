"""Fold batch norms in inference into the weights of the product before, or make them a multiply-add per channel."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from .graph import TorchGraph, argument, aten, dtype_of, is_tensor, retyped, shape_of, sole_user

# The operators' argument names; `_argument_names` covers the differences between schemas.
_NAMES = ("input", "weight", "bias", "running_mean", "running_var", "eps")
_NORMS = (aten._native_batch_norm_legit_no_training.default, aten.native_batch_norm.default, aten.batch_norm.default,
          aten.cudnn_batch_norm.default, aten._native_batch_norm_legit.default,
          aten._batch_norm_no_update.default)  # fmt: skip
_PRODUCTS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.conv1d.padding, aten.conv2d.padding,
             aten.conv3d.padding, aten.convolution.default, aten.linear.default)  # fmt: skip


def fold_batch_norms(graph: TorchGraph) -> None:
    """Rewrite `graph` in place: each batch norm becomes `x * a + b` with `a = weight / sqrt(var + eps)` and
    `b = bias - mean * a`, computed in f64. If `x` is a float product without other uses, `a` and `b` are folded into
    its weight and bias."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _NORMS:
            _fold(graph, node)
    graph.clean()


def _fold(graph: TorchGraph, node: Node) -> None:
    names = {a.name for a in node.target._schema.arguments}
    flag = "training" if "training" in names else "train" if "train" in names else None
    if flag is not None and argument(node, flag):
        return
    x, weight, bias, mean, variance, eps = (argument(node, n) for n in _argument_names(names))
    known = [None if v is None else graph.constant(v) for v in (weight, bias, mean, variance)]
    if known[2] is None or known[3] is None or any(
        k is None and v is not None for k, v in zip(known, (weight, bias, mean, variance), strict=True)
    ):  # fmt: skip
        return
    w, b, m, v = (None if k is None else k.double() for k in known)
    assert m is not None
    assert v is not None
    factor = torch.rsqrt(v + eps) * (1.0 if w is None else w)
    shift = (0.0 if b is None else b) - m * factor
    results = [u for u in node.users if u.target is operator.getitem and u.args[1] == 0]
    wanted = [node] if is_tensor(node) else results
    if not wanted:
        return
    new = _into_product(graph, wanted[0], x, factor, shift) or _applied(graph, wanted[0], x, factor, shift)
    for old in wanted:
        graph.replace(old, new)


def _argument_names(names: set[str]) -> list[str]:
    """The argument names in one schema: the input may be called `self`, and eps `epsilon`."""
    return [n if n in names else "self" if n == "input" else "epsilon" for n in _NAMES]


def _into_product(
    graph: TorchGraph, node: Node, x: torch.fx.Node, factor: torch.Tensor, shift: torch.Tensor
) -> Node | None:
    """The product `x` with the norm folded in; None if `x` is not an f32 product or has other uses."""
    if not isinstance(x, Node) or x.target not in _PRODUCTS or sole_user(x) is None or dtype_of(x) != torch.float32:
        return None
    if x.target is aten.convolution.default and argument(x, "transposed"):
        return None
    weight = graph.constant(argument(x, "weight"))
    bias = argument(x, "bias")
    before = None if bias is None else graph.constant(bias)
    if weight is None or weight.dtype != torch.float32 or (bias is not None and before is None):
        return None
    if len(shape_of(x)) != weight.dim():
        return None  # its channels are not on axis 1: a linear layer with several batch axes, or an unbatched image
    scaled = weight.double() * factor.reshape(-1, *[1] * (weight.dim() - 1))
    total = shift if before is None else shift + before.double() * factor
    if not (torch.isfinite(scaled.float()).all() and torch.isfinite(total.float()).all()):
        return None
    args = list(x.args) + [None] * (3 - len(x.args))
    args[1], args[2] = graph.new_constant(scaled.float(), x), graph.new_constant(total.float(), x)
    kwargs = {k: v for k, v in x.kwargs.items() if k not in ("weight", "bias")}
    return graph.call(x, x.target, args, kwargs, x.meta["val"])


def _applied(graph: TorchGraph, node: Node, x: torch.fx.Node, factor: torch.Tensor, shift: torch.Tensor) -> Node:
    """`x * factor + shift` per channel (axis 1), in f32 or f64."""
    shape = [-1, *[1] * (len(shape_of(x)) - 2)]
    kind = torch.promote_types(dtype_of(x), torch.float32)
    wide = retyped(node.meta["val"], kind)
    if dtype_of(x) != kind:
        x = graph.call(node, aten._to_copy.default, (x,), {"dtype": kind}, wide)
    a, b = (graph.new_constant(v.to(kind).reshape(shape), node) for v in (factor, shift))
    y = graph.call(node, aten.add.Tensor, (graph.call(node, aten.mul.Tensor, (x, a), {}, wide), b), {}, wide)
    if dtype_of(node) == kind:
        return y
    return graph.call(node, aten._to_copy.default, (y,), {"dtype": dtype_of(node)}, node.meta["val"])
