"""com.microsoft's operators of decoders: rotary embeddings, and grouped-query attention with a cache.

Source: onnxruntime, docs/ContribOperators.md, and contrib_ops/cpu/bert/{rotary_embedding,group_query_attention}.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....core.mlir import arith, ir, scf, tensor
from ....ir.build import (
    Arg,
    Extent,
    as_index,
    collapse,
    dims,
    elementwise as loops,
    expand,
    filled,
    generic,
    loop_index,
)
from ....ir.checks import assert_equal, assert_that, equal
from ....ir.scalars import const
from ....spec import TensorSpec
from ...attention import HEADS, SHARED
from ...raising import PatternDeclined, Tensor, raises
from ...tensors import at_index, cast_real, drop_axis, elementwise, new_axis, one_more, part, real, scalar_of
from ..model import refuse
from ..node import Node
from .common import onnx_op
from .heads import KeyOrValue, attended, head_count, no_inputs, no_results, with_states, without
from .masks import At, MaskTerm, as_place, between, bias, causal, in_heads
from .normalised import normalised


@raises("onnx.com.microsoft.RotaryEmbedding")
def rotary_embedding(op: Node) -> Tensor:
    """(input, position_ids, cos_cache, sin_cache): rotates pairs of elements of each head by the angle of their
    position; the input is `[batch, positions, heads * width]` or `[batch, heads, positions, width]`."""
    without(op, "is_packed_batching")
    if float(op.attributes.get("scale", 1.0)) != 1.0:
        raise refuse("RotaryEmbedding with a scale is not imported", op.where)
    op.plain = True
    x, places, cos = op.operand(0), op.operand(1), op.operand(2)
    flat = len(x.shape) == 3
    if flat:
        heads, width = int(op.attributes.get("num_heads", 0)), x.shape[2]
        if not heads:
            half = cos.shape[1]
            if not half or not width or width % (2 * half):
                raise PatternDeclined(f"an input {x.spec} and angles {cos.spec} without num_heads")
            heads = width // (2 * half)
        x = in_heads(x, 2, heads)
    if places.shape == (1,):
        places = _positions_from(places, dims(x.value)[1 if flat else 2])
    made = cast_real(_rotated(op, real(x), places, 2, 3, 2 if flat else 1, "interleaved"), x.dtype)
    if flat:
        made = Tensor(op.operand(0).spec, collapse(made.value, [[0], [1], [2, 3]]))
    return op.sized_as(0, made)


def _positions_from(first: Tensor, count: Extent) -> Tensor:
    """`[B, count]` i64: consecutive positions that start at `first [B]`."""
    i64 = ir.IntegerType.get_signless(64)

    def body(start: ir.Value) -> ir.Value:
        start = start if start.type == i64 else arith.extsi(i64, start)
        return arith.addi(start, arith.index_cast(i64, loop_index(1)))

    made = loops([Arg(first.value, (0,))], [dims(first.value)[0], count], i64, body)
    return Tensor(TensorSpec((first.shape[0], count if isinstance(count, int) else None), "i64"), made)


def _rotated(op: Node, x: Tensor, places: Tensor, cos: int, sin: int, heads: int, interleaved: str) -> Tensor:
    """Rotate f32 `x` of four axes by the rows `places [batch or 1, positions]` of the tables at inputs `cos` and `sin`.
    Axis `heads` is that of the heads, which share their angles. The elements of a pair are adjacent if the attribute
    named `interleaved` is set, and otherwise half the rotated width apart."""
    c, s = (new_axis(real(onnx_op(op, "Gather", op.operand(i), places, axis=0)), heads) for i in (cos, sin))
    half, width = c.shape[-1], x.shape[-1]
    if half is None or width is None or 2 * half > width:
        raise PatternDeclined(f"tables {op.operand(cos).spec} for heads of {width}")
    axis = 4 if op.attributes.get(interleaved, 0) else 3
    sizes = dims(x.value)
    rotary = part(x, 3, 0, 2 * half)
    rest = None if 2 * half == width else part(x, 3, 2 * half, width - 2 * half)
    pair = [half, 2] if axis == 4 else [2, half]
    split = expand(rotary.value, [[size] for size in sizes[:3]] + [[*pair]])
    pairs = Tensor(TensorSpec((*x.shape[:3], *pair), "f32"), split)
    a, b = (at_index(pairs, axis, i) for i in (0, 1))

    def first(x: ir.Value, y: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        return arith.subf(arith.mulf(x, cos), arith.mulf(y, sin))

    def second(x: ir.Value, y: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        return arith.addf(arith.mulf(y, cos), arith.mulf(x, sin))

    both = [new_axis(elementwise(f, [a, b, c, s], "f32"), axis) for f in (first, second)]
    whole = collapse(onnx_op(op, "Concat", *both, axis=axis).value, [[0], [1], [2], [3, 4]])
    made = Tensor(rotary.spec, whole)
    return made if rest is None else onnx_op(op, "Concat", made, rest, axis=3)


# ------------------------------------------------------------------------- grouped-query attention with a cache


@raises("onnx.com.microsoft.GroupQueryAttention")
def group_query_attention(op: Node) -> list[Tensor]:
    """(query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids,
    attention_bias, head_sink, .., q_norm_weight, k_norm_weight): the cache of each row of the batch holds its own
    number of keys and values, after which the new ones are written; its tensor may have room for more positions."""
    no_inputs(op, {12: "k_scale", 13: "v_scale", 16: "query_seqlens"})
    no_results(op, {3: "output_qk"})
    without(op, "sliding_window_cache", "kv_cache_bit_width")
    op.plain = True
    heads, keys = head_count(op), head_count(op, "kv_num_heads")
    if heads % keys:
        raise refuse(f"num_heads {heads} is not a multiple of kv_num_heads {keys}", op.where)
    shared = heads // keys
    q, k, v = _normalised(op, *_separate(op, heads, keys))
    past = op.optional(3), op.optional(4)
    before: Tensor | int = 0 if past[0] is None else _cached_counts(op, dims(q.value)[1])
    if op.attributes.get("do_rotary", 0):
        places = op.optional(9)
        if places is None:
            first = before if isinstance(before, Tensor) else Tensor.constant(np.full(1, before, np.int64))
            places = _positions_from(first, dims(q.value)[1])
        q, k = (cast_real(_rotated(op, real(t), places, 7, 8, 2, "rotary_interleaved"), t.dtype) for t in (q, k))
    found = KeyOrValue(k), KeyOrValue(v)
    if past[0] is not None and past[1] is not None and isinstance(before, Tensor):
        length = _length(op, past[0])
        _check_lengths(op, past[0], before, dims(q.value)[1], length)
        axes = f"b{HEADS}k"
        found = (
            KeyOrValue(_appended(past[0], k, before, length), axes),
            KeyOrValue(_appended(past[1], v, before, length), axes),
        )
    made = _attention(op, q, found, before, shared)
    return with_states(op, made, *found)


def _separate(op: Node, heads: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values `[B, m, heads, width]`, from three tensors or from one packed tensor."""
    q, k, v = op.operand(0), op.optional(1), op.optional(2)
    if k is None or v is None:
        whole = in_heads(q, 2, heads + 2 * keys)
        return part(whole, 2, 0, heads), part(whole, 2, heads, keys), part(whole, 2, heads + keys, keys)
    return in_heads(q, 2, heads), in_heads(k, 2, keys), in_heads(v, 2, keys)


def _normalised(op: Node, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """RMS-normalise each head of queries and keys if the node has weights for it."""
    weights = op.optional(14), op.optional(15)
    usual = float(op.attributes.get("qk_norm_epsilon", 1e-6))
    q, k = (t if w is None else normalised(t, w, None, float(op.attributes.get(f"{name}_norm_epsilon", usual)),
                                           centred=False)
            for t, w, name in zip((q, k), weights, "qk", strict=True))  # fmt: skip
    return q, k, v


def _cached_counts(op: Node, queries: Extent) -> Tensor:
    """`[B]` i32: the number of keys in the cache of each row of the batch; 0 if total_sequence_length is `queries`."""
    lengths, total = op.operand(5), scalar_of(op.operand(6))
    if len(lengths.shape) == 2:
        lengths = drop_axis(lengths, 1)
    i32 = ir.IntegerType.get_signless(32)

    def body(last: ir.Value, longest: ir.Value) -> ir.Value:
        count = arith.index_cast(i32, as_index(queries))
        first = arith.cmpi(arith.CmpIPredicate.eq, longest, count)
        one = arith.constant(i32, 1)
        return arith.select(first, arith.constant(i32, 0), arith.subi(arith.addi(last, one), count))

    return elementwise(body, [lengths, total], "i32")


def _length(op: Node, past: Tensor) -> Extent:
    """The number of positions of the cache after this call: the larger of its previous number and
    total_sequence_length."""
    size, total = past.shape[2], scalar_of(op.operand(6))
    spec = op.results[1] if len(op.results) > 1 else None
    if spec is not None and len(spec.shape) == 4 and spec.shape[2] is not None:
        return spec.shape[2]
    if size is not None and total.array is not None:
        return max(size, int(total.array))
    longest = as_place(tensor.extract(total.value, []))
    return arith.maxsi(as_index(dims(past.value)[2]), longest)


def _check_lengths(op: Node, past: Tensor, before: Tensor, queries: Extent, length: Extent) -> None:
    """Check at run time that the stated lengths fit the cache; otherwise positions without a key would be read."""
    longest = as_place(tensor.extract(scalar_of(op.operand(6)).value, []))
    places = as_index(dims(past.value)[2])
    grown = equal(longest, arith.addi(places, as_index(queries)))
    inside = arith.cmpi(arith.CmpIPredicate.sle, longest, places)
    fits = arith.ori(arith.ori(grown, inside), equal(longest, queries))
    assert_that(fits, f"{op.where}: total_sequence_length is neither that of these queries alone, nor that of the "
                "cache and these queries, nor within the cache")  # fmt: skip
    rows = Arg(before.value, (0,))
    i32 = ir.IntegerType.get_signless(32)
    least, most = (
        tensor.extract(generic([rows], filled([], arith.constant(i32, start)), (), 1, choose), [])
        for start, choose in ((2**31 - 1, arith.minsi), (-(2**31), arith.maxsi))
    )
    enough = arith.cmpi(arith.CmpIPredicate.sge, least, arith.constant(i32, 0))
    room = arith.cmpi(arith.CmpIPredicate.sle, arith.addi(as_place(most), as_index(queries)), as_index(length))
    assert_that(arith.andi(enough, room), f"{op.where}: seqlens_k of a row is not a position in the cache, or "
                "leaves no room for its queries")  # fmt: skip


def _appended(past: Tensor, new: Tensor, before: Tensor, length: Extent) -> Tensor:
    """A cache `[B, heads, length, width]`: that of `past`, with `new [B, m, heads, width]` written from position
    `before [B]` on, and zeros at positions that neither has."""
    b, heads, _, width = dims(past.value)
    rows, count = as_index(dims(past.value)[2]), as_index(dims(new.value)[1])
    kind = past.value.type.element_type

    def read(source: Tensor, *at: ir.Value) -> ir.Value:
        return tensor.extract(source.value, list(at))

    def body(start: ir.Value) -> ir.Value:
        i, h, j, d = (loop_index(axis) for axis in range(4))
        at = arith.subi(j, as_place(start))
        is_new = arith.cmpi(arith.CmpIPredicate.ult, at, count)  # unsigned, so that a negative `at` is large
        is_old = arith.cmpi(arith.CmpIPredicate.ult, j, rows)
        # Branches, not selects, because nothing can be read from an empty cache.
        chosen = scf.IfOp(is_new, [kind], has_else=True)
        with ir.InsertionPoint(chosen.then_block):
            scf.yield_([read(new, i, at, h, d)])
        with ir.InsertionPoint(chosen.else_block):
            kept = scf.IfOp(is_old, [kind], has_else=True)
            with ir.InsertionPoint(kept.then_block):
                scf.yield_([read(past, i, h, j, d)])
            with ir.InsertionPoint(kept.else_block):
                scf.yield_([arith.constant(kind, 0.0)])
            scf.yield_([kept.results[0]])
        return chosen.results[0]

    made = loops([Arg(before.value, (0,))], [b, heads, length, width], kind, body)
    shape = (*past.shape[:2], length if isinstance(length, int) else None, past.shape[3])
    return Tensor(TensorSpec(shape, past.dtype), made)


def _attention(op: Node, q: Tensor, found: tuple[KeyOrValue, KeyOrValue], before: Tensor | int, shared: int) -> Tensor:
    attributes = op.attributes
    window = int(attributes.get("local_window_size", -1))
    if attributes.get("causal", 1):
        terms = [causal(before, window)]
    else:
        last = op.operand(5)
        one = Tensor.constant(np.int32(1))
        terms = [between(None, elementwise(arith.addi, [last, one], "i32"), float("-inf"))]
    keys, values = found
    heads = keys.tensor.shape[keys.axes.index(HEADS)]
    extra, sink = op.optional(10), op.optional(11)
    assert heads is not None
    if sink is None and attributes.get("smooth_softmax", 0):
        sink = Tensor.constant(np.zeros(heads * shared, np.float32))
    if extra is not None:
        terms.append(bias(_extended_bias(op, extra, keys.places), heads, shared))
    if sink is not None:
        terms = _with_sink(terms, sink, keys.places, heads, shared)
        keys, values = keys.with_one_more(), values.with_one_more()
    return attended(q, keys, values, terms, float(attributes.get("scale", 0.0)), shared,
                    float(attributes.get("softcap", 0.0)))  # fmt: skip


def _extended_bias(op: Node, extra: Tensor, places: Extent) -> Tensor:
    """An attention_bias `[.., total_sequence_length]` extended to the `places` positions of the cache. The added values
    do not matter, because the mask hides these positions."""
    count = dims(extra.value)[-1]
    if isinstance(count, int) and count == places:
        return extra
    total = as_place(tensor.extract(scalar_of(op.operand(6)).value, []))
    assert_equal(count, total, f"{op.where}: the last axis of attention_bias must have the size total_sequence_length")
    last = arith.subi(as_index(count), as_index(1))

    def body() -> ir.Value:
        *outer, k = (loop_index(axis) for axis in range(len(extra.shape)))
        return tensor.extract(extra.value, [*outer, arith.minui(k, last)])

    made = loops([], [*dims(extra.value)[:-1], places], extra.value.type.element_type, body)
    shape = (*extra.shape[:-1], places if isinstance(places, int) else None)
    return Tensor(TensorSpec(shape, extra.dtype), made)


def _with_sink(terms: Sequence[MaskTerm], sink: Tensor, last: Extent, heads: int, shared: int) -> list[MaskTerm]:
    """The mask terms with one more key at position `last`. This key is all zeros, so that its score is the mask's
    value, which is the sink of the head."""

    def is_last(at: At) -> ir.Value:
        return equal(at["k"], last)

    def but_last(term: MaskTerm) -> MaskTerm:
        def value(at: At, *xs: ir.Value) -> ir.Value:
            return arith.select(is_last(at), const(0.0), term.value(at, *xs))

        wide = [
            one_more(t, len(axes) - 1) if axes.endswith("k") else t
            for t, axes in zip(term.tensors, term.axes, strict=True)
        ]
        letters = term.letters if "k" in term.letters else f"{term.letters}k"
        return replace(term, tensors=wide, value=value, letters=letters)

    letters = HEADS + SHARED if shared > 1 else HEADS
    by_head = real(sink) if shared == 1 else in_heads(real(sink), 0, heads)
    of_sink = MaskTerm([by_head], [letters], f"{letters}k", lambda at, x: arith.select(is_last(at), x, const(0.0)))
    return [*map(but_last, terms), of_sink]
