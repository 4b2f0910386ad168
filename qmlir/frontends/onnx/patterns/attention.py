"""Raise attention that exporters write as separate operators, `softmax(scale * q k^T + mask) v`, to one op.

Operands are read in their stored layout: a transpose before or after a product becomes another order of axis letters, a
scale of q or k is multiplied into the scale of the scores, and keys and values that are repeated for several heads are
read without the repetition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ....dialect.dtypes import DTYPES
from ...attention import HEADS, AttentionCall, AttentionInput
from ...raising import NotQuantised, Tensor, raises
from ..node import Node
from .common import absorb, narrowed, onnx_op

_BATCH = "ABCDEF"  # letters of the batch axes; the last batch axis is that of the heads instead
NodeInput: TypeAlias = "tuple[Node, int]"  # a node and the index of one of its inputs


def attention_of(op: Node) -> Tensor | None:
    """Build attention if the node is the product of a softmax of scores and of values; otherwise return None."""
    found = _matched(op)
    if found is None:
        return None
    call, nodes = found
    spec = op.results[0]
    shape = spec.shape if spec is not None else tuple(_sizes(call, op)[a] for a in call.axes)
    absorb(op, *nodes)
    op.plain = True
    op.graph.attentions[op.index] = call
    return call.made(call.axes, shape)


@raises("onnx.Transpose")
def transpose(op: Node) -> Tensor:
    """A transpose of an attention's result is merged into the attention, which stores its result in that order. Other
    transposes are imported by torch-mlir, which needs for the input the static sizes that are known for the result."""
    node, x, spec = op.producer(0), op.operand(0), op.results[0]
    order = list(op.attributes.get("perm") or range(len(x.shape))[::-1])
    call = None if node is None else op.graph.attentions.get(node.index)
    if node is not None and call is not None and node.uses() == 1:
        axes = "".join(call.axes[i] for i in order)
        if axes[-1] == "n":  # the columns of the values stay contiguous
            op.plain = True
            return call.made(axes, [x.shape[i] for i in order])
    if spec is None or all(x.shape[i] is not None or size is None for i, size in zip(order, spec.shape, strict=True)):
        raise NotQuantised
    return onnx_op(
        op, "Transpose", narrowed(op, x, [spec.shape[order.index(i)] for i in range(len(order))]), perm=order
    )


# ---- matching the graph


def _matched(op: Node) -> tuple[AttentionCall, tuple[Node, ...]] | None:
    found = _softmax(op.producer(0))
    if found is None:
        return None
    softmax, between = found
    product, scale, masks, inside = _product(softmax)
    if product is None:
        return None
    q, k_columns, v = product.operand(0), product.operand(1), op.operand(1)
    rank = len(q.shape)
    dtype = op.operand(0).dtype
    if DTYPES[dtype].kind != "float" or dtype == "f64" or not 2 <= rank <= len(_BATCH) + 2:
        return None
    if any(len(t.shape) != rank or t.dtype != dtype for t in (k_columns, v)):
        return None
    shapes = [product.named(0), product.named(1), op.named(1)]
    if any(not _same(shapes[0][i], s[i]) for s in shapes[1:] for i in range(rank - 2)):
        return None
    if any(q.shape[-1] is None or s is None for s in (v.shape[-1], q.shape[-1])) or 0 in (*q.shape, *v.shape):
        return None
    batch = _BATCH[: rank - 2]
    if batch:
        batch = batch[:-1] + HEADS
    found_q, scale_q, nodes_q = _scaled(product, 0)
    found_k, scale_k, nodes_k = _scaled(product, 1)
    columns = _through_transposes((op, 1), batch + "kn")
    keys, keys_axes, heads = _keys(found_k, batch)
    values, values_axes, heads_of_values = _heads(*columns)
    if heads == heads_of_values:
        places = [(keys, keys_axes), (values, values_axes)]
    else:
        places = [(found_k, batch + "dk"), columns]
        heads = 1
    places.insert(0, _through_transposes(found_q, batch + "md"))
    mask = _mask(op, masks, batch + "mk", product)
    if mask is False or (isinstance(mask, AttentionInput) and heads > 1 and HEADS in mask.axes):
        return None
    operands = [AttentionInput(place[0].operand(place[1]), axes) for place, axes in places]
    if operands[1].axes[-1] != "d":  # the kernels read keys row by row
        order = [operands[1].axes.index(a) for a in batch + "kd"]
        operands[1] = AttentionInput(onnx_op(op, "Transpose", operands[1].tensor, perm=order), batch + "kd")
    call = AttentionCall(
        q=operands[0], k=operands[1], v=operands[2], mask=mask if isinstance(mask, AttentionInput) else None,
        axes=batch + "mn", scale=scale * scale_q * scale_k, heads=heads, dtype=dtype,
    )  # fmt: skip
    return call, (softmax, *between, *inside, product, *nodes_q, *nodes_k)


def _softmax(node: Node | None) -> tuple[Node, tuple[Node, ...]] | None:
    """The softmax over the last axis that makes the weights, and the nodes after it that replace NaN by 0, if any."""
    between: tuple[Node, ...] = ()
    reads = 1
    if node is not None and node.op_type == "Where":
        test, kept = node.producer(0), node.proto.input[2]
        if test is None or test.op_type != "IsNaN" or test.proto.input[0] != kept or _number(node, 1) != 0:
            return None
        if node.uses() != 1 or test.uses() != 1:
            return None
        between, reads, node = (node, test), 2, node.producer(2)
    if node is None or node.op_type != "Softmax" or node.uses() != reads:
        return None
    rank = len(node.operand(0).shape)
    axis = int(node.attributes.get("axis", -1 if node.opset >= 13 else 1))
    return (node, between) if axis in (-1, rank - 1) else None


def _product(softmax: Node) -> tuple[Node | None, float, list[NodeInput], tuple[Node, ...]]:
    """The product of queries and keys (None if not found), its scale, the masks that are added to it, and the nodes
    between it and the softmax."""
    place: NodeInput = (softmax, 0)
    masks: list[NodeInput] = []
    nodes: list[Node] = []
    scale = 1.0
    while True:
        node = place[0].producer(place[1])
        if node is None or node.uses() != 1:
            return None, scale, masks, ()
        if node.op_type == "MatMul":
            return node, scale, masks, tuple(nodes)
        nodes.append(node)
        if node.op_type == "Add" and scale == 1.0:
            side = next((i for i in (0, 1) if _is_scores(node.producer(i))), None)
            if side is None:
                return None, scale, masks, ()
            masks.append((node, 1 - side))
            place = (node, side)
            continue
        factor = _factor(node)
        if factor is None:
            return None, scale, masks, ()
        scale *= factor[1]
        place = (node, factor[0])


def _is_scores(node: Node | None) -> bool:
    while node is not None and node.op_type in ("Add", "Mul", "Div"):
        node = next((p for i in (0, 1) if (p := node.producer(i)) is not None and _is_scores(p)), None)
    return node is not None and node.op_type == "MatMul"


def _factor(node: Node | None) -> tuple[int, float] | None:
    """For a node that multiplies an input by one constant number: the index of that input, and the number."""
    if node is None or node.op_type not in ("Mul", "Div"):
        return None
    for at in (1, 0) if node.op_type == "Mul" else (1,):
        number = _number(node, at)
        # A number of higher rank than the other operand would add axes to the result.
        if number and len(node.operand(at).shape) <= len(node.operand(1 - at).shape):
            return 1 - at, float(number if node.op_type == "Mul" else 1 / number)
    return None


def _number(node: Node, i: int) -> float | None:
    known = node.operand(i).array
    return float(known.reshape(-1)[0].astype(np.float64)) if known is not None and known.size == 1 else None


def _scaled(product: Node, i: int) -> tuple[NodeInput, float, tuple[Node, ...]]:
    """Operand `i` of the product before its multiplication by a number, that number, and the node that multiplies."""
    node = product.producer(i)
    factor = _factor(node)
    if node is None or factor is None:
        return (product, i), 1.0, ()
    return (node, factor[0]), factor[1], (node,)


def _through_transposes(place: NodeInput, axes: str) -> tuple[NodeInput, str]:
    """The tensor in front of the transposes that make an input, and its axis letters: the first one in the graph that
    has the same last axis."""
    best = place, axes
    while (node := place[0].producer(place[1])) is not None and node.op_type == "Transpose":
        axes = _operand_axes(node, axes)
        place = (node, 0)
        if axes[-1] == best[1][-1]:
            best = place, axes
    return best


def _operand_axes(transpose: Node, axes: str) -> str:
    """The axis letters of a transpose's operand, from those of its result."""
    order = list(transpose.attributes.get("perm") or range(len(axes))[::-1])
    return "".join(axes[order.index(i)] for i in range(len(axes)))


def _keys(place: NodeInput, batch: str) -> tuple[NodeInput, str, int]:
    """The keys of which an input `[.., d, k]` is the transpose: the input that reads them, their axis letters, and how
    many query heads read each of their heads."""
    outer = place[0].producer(place[1])
    inner = None if outer is None else _transposed_matrices(outer)
    if outer is not None and inner is not None:
        result = _shape_of(outer)
        keys, source = (*result[:-2], result[-1], result[-2]), inner.named(0)
        if len(source) == len(keys) and all(map(_same, source, keys)):
            return *_through_transposes((inner, 0), batch + "kd"), 1
        if (found := _unrepeated(inner, batch + "kd", keys)) is not None:
            return found
    axes = batch + "dk"
    best = place, axes
    while (node := place[0].producer(place[1])) is not None and node.op_type == "Transpose":
        axes = _operand_axes(node, axes)
        place = (node, 0)
        if axes[-1] == "d" or best[1][-1] != "d":
            best = place, axes
    return _heads(*best)


def _transposed_matrices(outer: Node) -> Node | None:
    """The Reshape that merges the batch axes of keys into one, if `outer` is the Reshape that splits it again after a
    transpose of the matrices."""
    middle = outer.producer(0) if outer.op_type == "Reshape" else None
    if middle is None or middle.op_type != "Transpose" or list(middle.attributes.get("perm", [])) != [0, 2, 1]:
        return None
    inner = middle.producer(0)
    return inner if inner is not None and inner.op_type == "Reshape" else None


def _heads(place: NodeInput, axes: str) -> tuple[NodeInput, str, int]:
    """The tensor before its heads are repeated, its axis letters, and how many query heads read each of its heads."""
    reshape = place[0].producer(place[1])
    if reshape is not None and reshape.op_type == "Reshape" and axes[-3:-2] == HEADS:
        found = _unrepeated(reshape, axes, _shape_of(reshape))
        if found is not None:
            return found
    return place, axes, 1


def _unrepeated(reshape: Node, axes: str, flat: Sequence[int | str]) -> tuple[NodeInput, str, int] | None:
    """The tensor `[b.., H, k, d]`, its axis letters and G, if `reshape` ends the nodes that repeat each head G times to
    get the shape `flat`, `[b.., H * G, k, d]`; otherwise None."""
    expand = reshape.producer(0)
    unsqueeze = expand.producer(0) if expand is not None and expand.op_type == "Expand" else None
    if expand is None or unsqueeze is None or unsqueeze.op_type != "Unsqueeze":
        return None
    plain, one, many = unsqueeze.named(0), expand.named(0), reshape.named(0)
    at = len(axes) - 3
    if not len(plain) == len(axes) == len(flat) or not len(many) == len(axes) + 1 == len(one) or one[at + 1] != 1:
        return None
    times, heads = many[at + 1], plain[at]
    if not isinstance(times, int) or not isinstance(heads, int) or flat[at] != heads * times:
        return None
    alike = [*plain[: at + 1], times, *plain[at + 1 :]]
    whole = [*plain[:at], heads * times, *plain[at + 1 :]]
    if not all(map(_same, many, alike)) or not all(map(_same, flat, whole)):
        return None
    return *_through_transposes((unsqueeze, 0), axes), times


def _mask(op: Node, masks: list[NodeInput], axes: str, product: Node) -> AttentionInput | bool | None:
    """The mask that is added to the scores; None for no mask, False if it is not known to broadcast to the scores."""
    scores = [*product.named(0)[:-1], product.named(1)[-1]]
    kept = []
    for node, i in masks:
        if (known := node.operand(i).array) is None or known.any():
            kept.append((node, i))
        elif len(known.shape) > len(scores) or any(
            size != 1 and whole == 1 for size, whole in zip(known.shape[::-1], scores[::-1], strict=False)
        ):  # zeros, but their shape would broadcast the scores
            return False
    if not kept:
        return None
    for node, i in kept:
        shape = node.named(i)
        if len(shape) > len(scores):
            return False
        for size, whole in zip(shape[::-1], scores[::-1], strict=False):
            if not _same(size, whole) and size != 1:
                return False
    tensors = [node.operand(i) for node, i in kept]
    total = tensors[0]
    for more in tensors[1:]:
        total = onnx_op(op, "Add", total, more)
    letters = axes[len(axes) - len(total.shape) :]
    # A key axis of size one keeps its letter, because every mask has a key axis.
    found = "".join("1" if size == 1 and a != "k" else a for size, a in zip(total.shape, letters, strict=True))
    return AttentionInput(total, found) if total.shape and (total.shape[-1] != 1 or scores[-1] == 1) else False


def _sizes(call: AttentionCall, op: Node) -> dict[str, int | None]:
    return {a: s for o in (call.q, call.v) for a, s in zip(o.axes, o.tensor.shape, strict=True)}


# ---- sizes; a dynamic size is represented by its name


def _shape_of(node: Node) -> tuple[int | str, ...]:
    spec = node.results[0]
    return () if spec is None else node.graph.shapes.named(node.proto.output[0], spec.shape)


def _same(a: int | str, b: int | str) -> bool:
    """Whether two sizes are known to be equal."""
    return a == b and a != ""
