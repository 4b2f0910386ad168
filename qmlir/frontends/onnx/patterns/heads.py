"""com.microsoft's multi-head attention, which onnxruntime's optimisers make of encoders and of models like GPT-2.

Queries, keys and values are read in their stored layout, `[batch, positions, heads, width]`, and states of earlier
calls as `[batch, heads, positions, width]`. Source: onnxruntime, docs/ContribOperators.md, and contrib_ops/cpu/bert.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....ir.build import Extent, collapse, dims
from ....spec import TensorSpec
from ...attention import HEADS, SHARED, attention
from ...raising import PatternDeclined, Tensor, raises
from ...tensors import at_index, cast_real, new_axis, one_more, part, real
from ..model import refuse
from ..node import Node
from .common import onnx_op
from .masks import MaskTerm, between, bias, causal, flags, in_heads, mask_of
from .normalised import added
from .products import matmul_product, quantised


@dataclass(frozen=True)
class KeyOrValue:
    """Keys or values and the letters of their axes except the last: `bkH` for inputs, `bHk` for states."""

    tensor: Tensor
    axes: str = f"bk{HEADS}"

    @property
    def places(self) -> Extent:
        """The number of positions."""
        return dims(self.tensor.value)[self.axes.index("k")]

    def in_state(self, op: Node) -> Tensor:
        return self.tensor if self.axes[1] == HEADS else onnx_op(op, "Transpose", self.tensor, perm=[0, 2, 1, 3])

    def behind(self, op: Node, past: Tensor | None) -> KeyOrValue:
        """Appended to those of a state `[B, heads, positions, width]`."""
        if past is None:
            return self
        return KeyOrValue(onnx_op(op, "Concat", past, self.in_state(op), axis=2), f"b{HEADS}k")

    def with_one_more(self) -> KeyOrValue:
        """With one more position of zeros at the end."""
        return KeyOrValue(one_more(self.tensor, self.axes.index("k")), self.axes)


def attended(
    q: Tensor,
    k: KeyOrValue,
    v: KeyOrValue,
    terms: Sequence[MaskTerm],
    scale: float,
    shared: int = 1,
    softcap: float = 0.0,
) -> Tensor:
    """The attention `[B, m, heads * columns]` of queries `[B, m, heads, width]`, in the type of q. `shared`: the number
    of query heads that read the same head of keys and values."""
    heads, width = q.shape[2:]
    assert heads is not None
    assert width is not None
    wide = real(q) if shared == 1 else in_heads(real(q), 2, heads // shared)
    inner = f"{HEADS}{SHARED}" if shared > 1 else HEADS
    b, m, *several, _ = dims(wide.value)
    sizes = {"b": b, "m": m, "k": k.places, **dict(zip(inner, several, strict=True))}
    mask, letters = mask_of(terms, sizes)
    columns = v.tensor.shape[-1]
    axes = [f"bm{inner}d", f"{k.axes}d", f"{v.axes}n", letters, f"bm{inner}n"]
    made = attention(wide, real(k.tensor), real(v.tensor), mask, axes, (*wide.shape[:-1], columns),
                     scale or 1 / math.sqrt(width), softcap=softcap)  # fmt: skip
    assert columns is not None
    flat = collapse(made.value, [[0], [1], list(range(2, len(made.shape)))])
    return cast_real(Tensor(TensorSpec((*q.shape[:2], heads * columns), "f32"), flat), q.dtype)


def head_count(op: Node, name: str = "num_heads") -> int:
    """The number of heads in the attribute `name`. Raises FrontEndError if it is not positive."""
    heads = int(op.attributes.get(name, 0))
    if heads < 1:
        raise refuse(f"{name} is {heads}, which must be positive", op.where)
    return heads


def without(op: Node, *names: str) -> None:
    """Refuse attributes that are set."""
    for name in names:
        if op.attributes.get(name):
            raise refuse(f"{op.op_type} with {name} = {op.attributes[name]} is not imported", op.where)


def no_inputs(op: Node, inputs: dict[int, str]) -> None:
    """Refuse the inputs of these indices if they are present."""
    for i, name in inputs.items():
        if op.optional(i) is not None:
            raise refuse(f"{op.op_type} with {name} is not imported", op.where)


def no_results(op: Node, results: dict[int, str]) -> None:
    """Refuse the results of these indices if they are requested."""
    for i, name in results.items():
        if op.wants(i):
            raise refuse(f"the result {name} of {op.op_type} is not imported", op.where)


def _padding(op: Node, mask: Tensor | None, batch: int | str) -> list[MaskTerm]:
    """The mask terms of a mask that holds flags, lengths `[B]`, or ends and starts `[2 B]`."""
    if mask is None:
        return []
    hidden = float(op.attributes.get("mask_filter_value", -10000.0))
    if len(mask.shape) != 1:
        return [flags(mask, hidden)]
    size = op.graph.shapes.named(op.proto.input[_MASK[op.proto.op_type]], mask.shape)[0]
    if size == batch != "":
        return [between(None, mask, hidden)]
    if not isinstance(batch, int) or size != 2 * batch or op.proto.op_type == "MultiHeadAttention":
        raise PatternDeclined(f"a mask {mask.spec} for a batch of {batch or 'unknown size'}; lengths, [batch], and "
                              "flags, [batch, keys], are imported")  # fmt: skip
    ends, starts = (part(mask, 0, i * batch, batch) for i in (0, 1))
    return [between(starts, ends, hidden)]


_MASK = {"Attention": 3, "QAttention": 5, "MultiHeadAttention": 4}  # the index of the mask input


def _count(past: Tensor | None) -> Extent:
    """The number of positions in a state."""
    return 0 if past is None else dims(past.value)[2]


# ------------------------------------------------------------------------------------- with projections


@raises("onnx.com.microsoft.Attention", "onnx.com.microsoft.QAttention")
def attention_with_weights(op: Node) -> list[Tensor]:
    """Three products (of codes in QAttention) project the input to queries, keys and values; keys and values of earlier
    calls come first in the attention."""
    coded = op.proto.op_type == "QAttention"
    heads = head_count(op)
    without(op, "do_rotary", "past_present_share_buffer")
    past = op.optional(8 if coded else 4)
    extra = None if coded else op.optional(5)
    x, weight = op.operand(0), op.operand(1)
    total = weight.shape[1]
    if total is None or len(x.shape) != 3:
        raise PatternDeclined(f"an input {x.spec} and weights {weight.spec}")
    widths = [int(w) for w in op.attributes.get("qkv_hidden_sizes", [])] or [total // 3] * 3
    if sum(widths) != total:
        raise PatternDeclined(f"qkv_hidden_sizes {widths} for weights of {total} columns")
    starts = [0, widths[0], widths[0] + widths[1]]
    q, k, v = (
        in_heads(_projected(op, coded, start, width), 2, heads) for start, width in zip(starts, widths, strict=True)
    )
    states = [None if past is None else onnx_op(op, "Gather", past, Tensor.constant(np.int64(i)), axis=0)
              for i in (0, 1)]  # fmt: skip
    keys, values = (KeyOrValue(t).behind(op, s) for t, s in zip((k, v), states, strict=True))
    terms = _padding(op, op.optional(_MASK[op.proto.op_type]), op.named(0)[0])
    if op.attributes.get("unidirectional", 0):
        terms.append(causal(_count(states[0])))
    if extra is not None:
        terms.append(bias(extra, heads))
    op.plain = not coded
    made = op.sized_as(0, attended(q, keys, values, terms, float(op.attributes.get("scale", 0.0))))
    if not op.wants(1):
        return [made]
    present = [new_axis(t.in_state(op), 0) for t in (keys, values)]
    return [made, onnx_op(op, "Concat", *present, axis=0)]


def _projected(op: Node, coded: bool, start: int, width: int) -> Tensor:
    """Columns `[start, start + width)` of the product with the weights, with their bias added."""

    def columns(t: Tensor | None) -> Tensor | None:
        if t is None or not t.shape or t.shape[-1] == 1:
            return t
        if t.array is not None:
            return Tensor.constant(np.ascontiguousarray(t.array[..., start : start + width]), t.dtype)
        return part(t, len(t.shape) - 1, start, width)

    x, weight, offset = op.operand(0), columns(op.operand(1)), columns(op.optional(2))
    assert weight is not None
    if not coded:
        made = onnx_op(op, "MatMul", x, weight)
        return made if offset is None else onnx_op(op, "Add", made, offset)
    lhs = quantised(x, op.operand(3), op.optional(6), 1)
    scale = columns(op.operand(4))
    rhs = quantised(weight, scale, columns(op.optional(7)), 1)
    return matmul_product(lhs, rhs, bias=None if offset is None else real(offset)).as_float(op)


@raises("onnx.com.microsoft.MultiHeadAttention")
def multi_head_attention(op: Node) -> list[Tensor]:
    """(query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value): attention of projected
    queries, keys and values, which may be packed in one tensor."""
    heads = head_count(op)
    no_inputs(op, {8: "past_sequence_length", 9: "cache_indirection"})
    no_results(op, {3: "qk"})
    op.plain = True
    q, k, v = _unpacked(op, heads)
    past = op.optional(6), op.optional(7)
    keys, values = (t.behind(op, s) for t, s in zip((k, v), past, strict=True))
    terms = _padding(op, op.optional(4), op.named(0)[0])
    if op.attributes.get("unidirectional", 0):
        terms.append(causal(_count(past[0])))
    extra = op.optional(5)
    if extra is not None:
        terms.append(bias(extra, heads))
    made = attended(q, keys, values, terms, float(op.attributes.get("scale", 0.0)))
    return with_states(op, made, keys, values)


def with_states(op: Node, made: Tensor, keys: KeyOrValue, values: KeyOrValue) -> list[Tensor]:
    """The results: `[B, m, ..]`, and the keys and values as states if they are requested."""
    made = op.sized(made, (*op.named(0)[:2], ""))
    return [made, *(t.in_state(op) if op.wants(i) else made for i, t in enumerate((keys, values), 1))]


def _unpacked(op: Node, heads: int) -> tuple[Tensor, KeyOrValue, KeyOrValue]:
    """Queries, keys and values with their biases added, from one, two or three tensors."""
    q, k, v, offset = op.operand(0), op.optional(1), op.optional(2), op.optional(3)
    found: list[Tensor] = []
    if len(q.shape) == 5:  # [B, m, heads, 3, width]
        found = _slices(q)
    elif k is not None and len(k.shape) == 5:  # [B, k, heads, 2, width]
        found = [in_heads(q, 2, heads), *_slices(k)]
    elif k is None or v is None:
        raise PatternDeclined(f"a query {q.spec} without keys or values")
    else:
        found = [t if len(t.shape) == 4 else in_heads(t, 2, heads) for t in (q, k, v)]
    if offset is not None:
        start = 0
        for i, t in enumerate(found):
            if i and k is not None and len(k.shape) == 4:  # keys and values that are states already have their biases
                break
            n, width = t.shape[2:]
            assert n is not None
            assert width is not None
            own = in_heads(part(offset, 0, start, n * width), 0, n)
            found[i] = cast_real(added(real(t), real(own)), t.dtype)
            start += n * width
    in_state = k is not None and len(k.shape) == 4
    axes = f"b{HEADS}k" if in_state else f"bk{HEADS}"
    return found[0], KeyOrValue(found[1], axes), KeyOrValue(found[2], axes)


def _slices(t: Tensor) -> list[Tensor]:
    """The slices of a tensor of five axes along its last but one."""
    return [at_index(t, 3, i) for i in range(t.shape[3] or 0)]
