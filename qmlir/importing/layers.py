"""The f32 operations of a decoder, as linalg on tensors."""

from __future__ import annotations

import math

from ..core.mlir import arith, ir, math as mlir_math, tensor
from ..ir.build import (
    Arg,
    collapse,
    dims,
    elementwise,
    empty,
    expand,
    filled,
    generic,
    index,
    loop_index,
    scalar,
    static,
    tensor_type,
)
from ..kernels.attention import AttentionTensor, build
from ..passes.core.lower.blocks import loop_i32, read
from .config import DecoderConfig

_SLE = arith.CmpIPredicate.sle


def f32() -> ir.Type:
    return ir.F32Type.get()


def rms_norm(x: ir.Value, weight: ir.Value, epsilon: float) -> ir.Value:
    """`x / sqrt(mean(x^2) + epsilon) * weight`: x `[T, E]`, weight `[E]` (Zhang and Sennrich 2019)."""
    sizes = dims(x)
    squares = generic([Arg(x, (0, 1))], filled(sizes[:1], scalar(0.0, f32())), [0], 2,
                      lambda a, acc: arith.addf(acc, arith.mulf(a, a)))  # fmt: skip
    inner = x.type.get_dim_size(1)

    def body(a: ir.Value, total: ir.Value, w: ir.Value) -> ir.Value:
        mean = arith.divf(total, scalar(float(inner), f32()))
        root = mlir_math.sqrt(arith.addf(mean, scalar(epsilon, f32())))
        return arith.mulf(arith.divf(a, root), w)

    return elementwise([Arg(x, (0, 1)), Arg(squares, (0,)), Arg(weight, (1,))], sizes, f32(), body)


def rotate(x: ir.Value, cos: ir.Value, sin: ir.Value, config: DecoderConfig) -> ir.Value:
    """RoPE (Su et al. 2021): x `[T, H, D]`; cos and signed sin `[T, D]`, of the tokens' positions."""
    tokens, heads, size = dims(x)
    half = config.rotary // 2
    if config.rotary == size:
        # Both halves are operands: IREE loads values that a body reads by index one at a time.
        def whole(low: ir.Value, high: ir.Value, c: ir.Value, s: ir.Value) -> ir.Value:
            first = arith.cmpi(arith.CmpIPredicate.eq, loop_index(2), index(0))
            own, partner = arith.select(first, low, high), arith.select(first, high, low)
            return arith.addf(arith.mulf(own, c), arith.mulf(partner, s))

        halves = [Arg(_half(x, start, half), (0, 1, 3)) for start in (0, half)]
        angles = [Arg(expand(a, [[dims(a)[0]], [2, half]]), (0, 2, 3)) for a in (cos, sin)]
        rotated = elementwise([*halves, *angles], [tokens, heads, 2, half], f32(), whole)
        return collapse(rotated, [[0], [1], [2, 3]])

    def body(a: ir.Value, c: ir.Value, s: ir.Value) -> ir.Value:
        d = loop_i32(2)
        below = arith.cmpi(arith.CmpIPredicate.slt, d, scalar(half, d.type))
        partner = arith.select(below, arith.addi(d, scalar(half, d.type)), arith.subi(d, scalar(half, d.type)))
        other = read(x, loop_i32(0), loop_i32(1), partner)
        return arith.addf(arith.mulf(a, c), arith.mulf(other, s))

    return elementwise([Arg(x, (0, 1, 2)), Arg(cos, (0, 2)), Arg(sin, (0, 2))], [tokens, heads, size], f32(), body)


def _half(x: ir.Value, start: int, size: int) -> ir.Value:
    """`size` elements of each head, from `start` on: x `[T, H, D]`."""
    sizes = [*dims(x)[:2], size]
    dynamic = [s for s in sizes if not isinstance(s, int)]
    return tensor.ExtractSliceOp(
        tensor_type(sizes, f32()), x, [], dynamic, [], [0, 0, start], static(sizes), [1, 1, 1]
    ).result  # fmt: skip


def attention(q: ir.Value, k: ir.Value, v: ir.Value, position: ir.Value) -> ir.Value:
    """Causal attention of grouped queries: q `[T, G, R, D]` (R query heads share key head g), k and v `[S, G, D]`;
    token t is at `position + t` (index) and attends to positions up to its own. Result `[T, G, R, D]`."""
    t, g, r, d = dims(q)
    s = dims(k)[0]
    scale = scalar(1.0 / math.sqrt(q.type.get_dim_size(3)), f32())
    if t == 1:  # the last token attends to all, so no mask is needed
        heads = collapse(q, [[0, 1], [2], [3]])
        out = AttentionTensor(empty([g, r, d], f32()), (0, 1, 4))
        result = build(
            AttentionTensor(heads, (0, 1, 2)),
            AttentionTensor(k, (3, 0, 2)),
            AttentionTensor(v, (3, 0, 4)),
            scale,
            None,
            out,
        )
        return expand(result, [[1, g], [r], [d]])

    def hidden() -> ir.Value:
        seen = arith.cmpi(_SLE, loop_index(1), arith.addi(position, loop_index(0)))
        return arith.select(seen, scalar(0.0, f32()), scalar(-math.inf, f32()))

    mask = AttentionTensor(elementwise([], [t, s], f32(), hidden), (0, 4))
    out = AttentionTensor(empty([t, g, r, d], f32()), (0, 1, 2, 5))
    return build(
        AttentionTensor(q, (0, 1, 2, 3)), AttentionTensor(k, (4, 1, 3)), AttentionTensor(v, (4, 1, 5)), scale, mask, out
    )


def multiply(a: ir.Value, b: ir.Value) -> ir.Value:
    """The elementwise product of two tensors of one shape."""
    sizes = dims(a)
    return elementwise([Arg.aligned(a, sizes), Arg.aligned(b, sizes)], sizes, f32(), arith.mulf)
