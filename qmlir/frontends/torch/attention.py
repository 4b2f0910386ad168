"""Fuse attention in an FX graph into one node, and raise that node to one op.

Both `scaled_dot_product_attention` and the operators to which transformers' eager attention is exported (a product, its
scale and mask, a softmax, a product) become a call of `torch.ops.qmlir.attention`. The call reads its operands in their
stored layout: a transpose before or after it permutes the letters of its `axes`, and copies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch.fx import Node

from ..attention import attention
from ..raising import Raising, Tensor, register_raising
from .custom_ops import NAMESPACE, define
from .graph import TorchGraph, argument, aten, dtype_of, is_tensor, retyped, same, same_shape, shape_of, sole_user

if TYPE_CHECKING:
    from torch._ops import OpOverload

_TRANSPOSES = (aten.transpose.int, aten.permute.default)
_SOFTMAX = (aten.softmax.int, aten._softmax.default)
_HALVES = (torch.float16, torch.bfloat16)  # computed in f32 and rounded once
_PRODUCTS = (aten.matmul.default, aten.bmm.default)
# Letters of axes: capitals for batch axes, m: queries, k: keys, d: the axis that q and k share, n: columns of values.
_BATCH = "ABCD"
_SCHEMA = (
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, float scale, bool causal, str[] axes) -> Tensor"
)  # fmt: skip


def fuse_attention(graph: TorchGraph) -> None:
    """Rewrite `graph` in place: every attention whose operands have the same batch axes becomes one node."""
    for node in graph.nodes:
        if node.op != "call_function" or node._erased:
            continue
        if node.target is aten.scaled_dot_product_attention.default:
            _fuse_sdpa(graph, node)
        elif node.target in _PRODUCTS:
            _fuse_eager(graph, node)
    graph.clean()
    graph.gm.graph.lint()
    graph.gm.recompile()


def _fuse_sdpa(graph: TorchGraph, node: Node) -> None:
    q, k, v = node.args[:3]
    mask, causal = argument(node, "attn_mask"), bool(argument(node, "is_causal"))
    if argument(node, "dropout_p") or (causal and mask is not None):
        return
    if argument(node, "enable_gqa"):
        k, v = (_repeated(graph, node, x, shape_of(q)) for x in (k, v))
    scale = argument(node, "scale")
    width = shape_of(q)[-1]
    if scale is None and isinstance(width, int):
        scale = 1.0 / math.sqrt(width or 1)  # if the axis is empty, every score is 0
    if isinstance(scale, (int, float)):
        _replace(graph, node, (q, k, v), mask, float(scale), causal)


def _repeated(graph: TorchGraph, node: Node, x: torch.fx.Node, queries: Sequence[torch.SymInt | int]) -> torch.fx.Node:
    """Repeat each head of keys or values `[.., heads / g, K, d]` `g` times, for queries `[.., heads, M, d]`."""
    shape = shape_of(x)
    if len(shape) < 3 or not isinstance(shape[-3], int) or not isinstance(queries[-3], int):
        return x
    if shape[-3] == queries[-3] or queries[-3] % shape[-3]:
        return x
    val = retyped(x.meta["val"], dtype_of(x), [*shape[:-3], queries[-3], *shape[-2:]])
    times = queries[-3] // shape[-3]
    return graph.call(node, aten.repeat_interleave.self_int, (x, times, len(shape) - 3), {}, val)


def _fuse_eager(graph: TorchGraph, node: Node) -> None:
    """Fuse `softmax(q @ k^T * scale + mask) @ v` if every intermediate value has one use."""
    weights, v = node.args
    if not _called(weights, _SOFTMAX) or sole_user(weights) is not node:
        return
    scores, axis = weights.args[:2]
    if axis not in (-1, len(shape_of(weights)) - 1) or dtype_of(weights) not in (torch.float32, *_HALVES):
        return
    mask, scale = None, 1.0
    inside = weights
    if _called(scores, (aten.add.Tensor,)) and not scores.kwargs:
        found = [(a, b) for a, b in (scores.args, reversed(scores.args)) if _scores(a) and is_tensor(b)]
        if not found or sole_user(scores) is not inside or dtype_of(found[0][1]) == torch.bool:
            return  # an added bool is a value 0 or 1, not a mask
        inside, (scores, mask) = scores, found[0]
    if _called(scores, (aten.mul.Tensor, aten.div.Tensor)):
        product, factor = scores.args
        if not isinstance(factor, (int, float)) or sole_user(scores) is not inside or factor == 0:
            return
        scale = float(factor) if scores.target is aten.mul.Tensor else 1.0 / float(factor)
        inside, scores = scores, product
    if not _called(scores, _PRODUCTS) or sole_user(scores) is not inside:
        return
    q, transposed = scores.args
    rank = len(shape_of(transposed))
    val = transposed.meta["val"].transpose(-1, -2)
    k = graph.call(node, aten.transpose.int, (transposed, rank - 2, rank - 1), {}, val)
    _replace(graph, node, (q, k, v), mask, scale, False)


def _called(node: torch.fx.Node, targets: Sequence[OpOverload]) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target in targets and is_tensor(node)


def _scores(node: torch.fx.Node) -> bool:
    """Whether a node is a product or a scaled product; the other operand of a sum is then the mask."""
    if _called(node, (aten.mul.Tensor, aten.div.Tensor)):
        return _called(node.args[0], _PRODUCTS)
    return _called(node, _PRODUCTS)


def _replace(
    graph: TorchGraph, node: Node, operands: Sequence[torch.fx.Node], mask: torch.fx.Node | None, scale: float,
    causal: bool,
) -> None:  # fmt: skip
    """Replace `node` by a call of `torch.ops.qmlir.attention`, if its operands have the form that this accepts."""
    q = operands[0]
    rank = len(shape_of(q))
    shapes = [shape_of(x) for x in operands]
    values = [*operands, node, *([mask] if mask is not None else [])]
    if not 2 <= rank <= len(_BATCH) + 2 or any(len(s) != rank for s in shapes):
        return
    if any(not same_shape(shapes[0][:-2], s[:-2]) for s in shapes) or 0 in shape_of(node):
        return
    kind = dtype_of(q)
    if kind not in (torch.float32, *_HALVES) or any(dtype_of(x) not in (kind, torch.bool) for x in values):
        return
    if not (same(shapes[0][-1], shapes[1][-1]) and same(shapes[1][-2], shapes[2][-2])):
        return
    if not all(isinstance(s[-1], int) for s in shapes):
        return
    sizes = dict(zip(_BATCH, shapes[0][:-2], strict=False)) | {"m": shapes[0][-2], "k": shapes[1][-2]}
    batch = _BATCH[: rank - 2]
    axes = []
    sources = []
    for x, letters in zip(operands, ("md", "kd", "kn"), strict=True):
        source, found = _untransposed(x, batch + letters)
        sources.append(source)
        axes.append(found)
    letters = ""
    if mask is not None:
        mask_axes = _mask_axes(shape_of(mask), batch + "mk", sizes)
        if mask_axes is None:
            return
        letters = mask_axes
    last, out = _transposed_result(node, batch + "mn")
    if kind in _HALVES:
        *sources, mask = (
            x if x is None or dtype_of(x) == torch.bool else _cast(graph, last, x, torch.float32)
            for x in (*sources, mask)
        )
    made = graph.call(
        last, torch.ops.qmlir.attention.default,
        (*sources, mask, scale, causal, [*axes, letters, out]), {}, retyped(last.meta["val"], torch.float32),
    )  # fmt: skip
    graph.replace(last, made if kind == torch.float32 else _cast(graph, last, made, kind))


def _cast(graph: TorchGraph, before: Node, x: torch.fx.Node, kind: torch.dtype) -> Node:
    return graph.call(before, aten._to_copy.default, (x,), {"dtype": kind}, retyped(x.meta["val"], kind))


def _permuted(node: Node, axes: str) -> str:
    """The letters of a transpose's result, from the letters `axes` of its operand."""
    if node.target is aten.permute.default:
        order: Sequence[int] = node.args[1]
        return "".join(axes[i] for i in order)
    swapped = list(axes)
    a, b = (int(str(x)) for x in node.args[1:3])
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return "".join(swapped)


def _untransposed(node: torch.fx.Node, axes: str) -> tuple[torch.fx.Node, str]:
    """Follow transposes back from `node` to the earliest value with the same last axis; return it and its letters."""
    found, letters = node, axes
    best = (node, axes)
    while _called(found, _TRANSPOSES):
        back = [""] * len(axes)
        for i, name in enumerate(_permuted(found, "".join(map(chr, range(len(axes)))))):
            back[ord(name)] = letters[i]
        found, letters = found.args[0], "".join(back)
        if letters[-1] == axes[-1]:
            best = (found, letters)
    return best


def _transposed_result(node: Node, axes: str) -> tuple[Node, str]:
    """The transpose that is the only use of `node` and keeps its last axis last, else `node`; and its axes' letters."""
    user = sole_user(node)
    if user is None or not _called(user, _TRANSPOSES):
        return node, axes
    permuted = _permuted(user, axes)
    return (user, permuted) if permuted[-1] == axes[-1] else (node, axes)


def _mask_axes(shape: Sequence[torch.SymInt | int], axes: str, sizes: dict[str, torch.SymInt | int]) -> str | None:
    """The letters of a mask's axes, "1" for a broadcast axis; None if its shape does not fit `axes`."""
    axes = axes[len(axes) - len(shape) :]
    if len(axes) != len(shape):
        return None
    found = ""
    for size, letter in zip(shape, axes, strict=True):
        if same(size, sizes[letter]):
            found += letter
        elif same(size, 1):
            found += "1"
        else:
            return None
    return found


# ------------------------------------------------------------------------------------------------- the operator


def _eager(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    axes: Sequence[str],
) -> torch.Tensor:
    """Compute the operator with torch."""
    plain = "".join(sorted(axes[4].replace("m", "").replace("n", "")))

    def ordered(x: torch.Tensor, letters: str, order: str) -> torch.Tensor:
        return x.permute([letters.index(a) for a in order])

    result = torch.nn.functional.scaled_dot_product_attention(
        ordered(q, axes[0], plain + "md"), ordered(k, axes[1], plain + "kd"), ordered(v, axes[2], plain + "kn"),
        attn_mask=mask, is_causal=causal, scale=scale,
    )  # fmt: skip
    return ordered(result, plain + "mn", axes[4]).contiguous()


def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float, causal: bool,
    axes: Sequence[str],
) -> torch.Tensor:  # fmt: skip
    sizes = dict(zip(axes[0], q.shape, strict=True)) | dict(zip(axes[2], v.shape, strict=True))
    return q.new_empty([sizes[a] for a in axes[4]])


def _raise(op: Raising) -> Tensor:
    spec = op.results[0]
    assert spec is not None
    operands = (op.operand(0), op.operand(1), op.operand(2), op.optional(3))
    with op.location:
        axes, scale = cast("Sequence[str]", op.attributes["axes"]), cast(float, op.attributes["scale"])
        return attention(*operands, axes, spec.shape, scale, bool(op.attributes["causal"]))


define(_SCHEMA, _fake, _eager)
register_raising(f"torch.{NAMESPACE}.attention", _raise)
