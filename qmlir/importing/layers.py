"""The float parts of a decoder, f32, as linalg on tensors."""

from __future__ import annotations

import math
from typing import Any

from .._mlir import arith, ir
from .._mlir import math as mlir_math
from ..passes.lower.blocks import loop_i32, read
from ..passes.lower.build import Arg, apart, dims, elementwise, filled, generic, loop_index, scalar
from .config import DecoderConfig

_SLE = arith.CmpIPredicate.sle


def f32() -> Any:
    return ir.F32Type.get()


def rms_norm(x: Any, weight: Any, epsilon: float) -> Any:
    """`x / sqrt(mean(x^2) + epsilon) * weight`: x `[T, E]`, weight `[E]` (Zhang and Sennrich 2019)."""
    sizes = dims(x)
    squares = generic([Arg(x, (0, 1))], filled(sizes[:1], scalar(0.0, f32())), [0], 2,
                      lambda a, acc: arith.addf(acc, arith.mulf(a, a)))  # fmt: skip
    inner = x.type.get_dim_size(1)

    def body(a: Any, total: Any, w: Any) -> Any:
        mean = arith.divf(total, scalar(float(inner), f32()))
        root = mlir_math.sqrt(arith.addf(mean, scalar(epsilon, f32())))
        return arith.mulf(arith.divf(a, root), w)

    return elementwise([Arg(x, (0, 1)), Arg(squares, (0,)), Arg(weight, (1,))], sizes, f32(), body)


def rotate(x: Any, cos: Any, sin: Any, config: DecoderConfig) -> Any:
    """RoPE (Su et al. 2021): x `[T, H, D]`; cos and signed sin `[T, D]`, of the tokens' positions."""
    half = config.rotary // 2

    def body(a: Any, c: Any, s: Any) -> Any:
        d = loop_i32(2)
        if config.rotary_pairs == "interleaved":
            partner = arith.xori(d, scalar(1, d.type))
        else:
            below = arith.cmpi(arith.CmpIPredicate.slt, d, scalar(half, d.type))
            partner = arith.select(below, arith.addi(d, scalar(half, d.type)), arith.subi(d, scalar(half, d.type)))
        other = read(x, loop_i32(0), loop_i32(1), partner)
        return arith.addf(arith.mulf(a, c), arith.mulf(other, s))

    sizes = dims(x)
    return elementwise([Arg(x, (0, 1, 2)), Arg(cos, (0, 2)), Arg(sin, (0, 2))], sizes, f32(), body)


def attention(q: Any, k: Any, v: Any, position: Any) -> Any:
    """Causal attention of grouped queries: q `[T, G, R, D]` (R query heads share key head g), k and v `[S, G, D]`;
    token t is at `position + t` (index) and sees what is at or before it. Result `[T, G, R, D]`.

    Softmax as usual: less the maximum, divided by the sum."""
    t, g, r, d = dims(q)
    s = dims(k)[0]
    scale = 1.0 / math.sqrt(q.type.get_dim_size(3))
    zero = scalar(0.0, f32())
    # Loops g, r, t, s, then d.
    dots = generic([Arg(q, (2, 0, 1, 4)), Arg(k, (3, 0, 4))], filled([g, r, t, s], zero), [0, 1, 2, 3], 5,
                   lambda a, b, acc: arith.addf(acc, arith.mulf(a, b)))  # fmt: skip

    def masked(x: Any) -> Any:
        seen = arith.cmpi(_SLE, loop_index(3), arith.addi(position, loop_index(2)))
        return arith.select(seen, arith.mulf(x, scalar(scale, f32())), scalar(-math.inf, f32()))

    scores = elementwise([Arg(dots, (0, 1, 2, 3))], [g, r, t, s], f32(), masked)
    highest = generic([Arg(scores, (0, 1, 2, 3))], filled([g, r, t], scalar(-math.inf, f32())), [0, 1, 2], 4,
                      lambda x, acc: arith.maximumf(acc, x))  # fmt: skip
    weights = elementwise([Arg(scores, (0, 1, 2, 3)), Arg(highest, (0, 1, 2))], [g, r, t, s], f32(),
                          lambda x, m: mlir_math.exp(arith.subf(x, m)))  # fmt: skip
    total = generic([Arg(weights, (0, 1, 2, 3))], filled([g, r, t], zero), [0, 1, 2], 4,
                    lambda x, acc: arith.addf(acc, x))  # fmt: skip
    # Apart: fused with the product that follows, the sums get buffers of a size that is not known (IREE 3.13).
    shares = apart(elementwise([Arg(weights, (0, 1, 2, 3)), Arg(total, (0, 1, 2))], [g, r, t, s], f32(), arith.divf))
    return generic([Arg(shares, (1, 2, 0, 4)), Arg(v, (4, 1, 3))], filled([t, g, r, d], zero), [0, 1, 2, 3], 5,
                   lambda a, b, acc: arith.addf(acc, arith.mulf(a, b)))  # fmt: skip


def multiply(a: Any, b: Any) -> Any:
    """Elementwise."""
    sizes = dims(a)
    return elementwise([Arg.aligned(a, sizes), Arg.aligned(b, sizes)], sizes, f32(), arith.mulf)
