"""Float ConvTranspose as one ordinary convolution with filters for each phase of the stride, whose results are then
interleaved. torch-mlir inserts zeros between the input's elements instead, so that most of its factors are zeros.

With `o + pad = stride * q + r`: `y[o] = sum_j x[q - j] w[r + stride * j]`, a convolution for each phase `r`. All phases
read the same window of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ....dialect.dtypes import Array
from ....ir.barriers import Reason, fusion_barrier
from ...raising import Tensor
from ..node import Node
from .common import ints, onnx_op


@dataclass(frozen=True)
class TransposedGeometry:
    """Sizes along each spatial axis. `pads`: the number of elements that are cut off in front of the result."""

    sizes: list[int]
    kernel: list[int]
    strides: list[int]
    pads: list[int]
    out: list[int]

    @property
    def taps(self) -> list[int]:
        """The number of taps of the longest phase."""
        return [-(-k // s) for k, s in zip(self.kernel, self.strides, strict=True)]

    @property
    def first(self) -> list[int]:
        """The index of the block of `stride` elements in which the result begins."""
        return [p // s for p, s in zip(self.pads, self.strides, strict=True)]

    @property
    def cut(self) -> list[int]:
        """The number of elements of that block in front of the result."""
        return [p % s for p, s in zip(self.pads, self.strides, strict=True)]

    @property
    def blocks(self) -> list[int]:
        """The number of blocks that the result spans."""
        return [-(-(c + o) // s) for c, o, s in zip(self.cut, self.out, self.strides, strict=True)]


def phased(op: Node, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Build a ConvTranspose by phases. None if the weight is not constant or a size other than the batch is dynamic,
    and for one group with dilation, because the zeros between the taps would be multiplied."""
    groups, dilations = int(op.attributes.get("group", 1)), op.attributes.get("dilations", [1])
    if weight.array is None or (groups == 1 and set(dilations) != {1}):
        return None
    kernel = _dilated(weight.array, dilations)
    g = _geometry(op, x, kernel)
    if g is None:
        return None
    filters = _filters(kernel, groups, g)
    each, axes = prod(g.strides), range(len(g.sizes))
    channels = filters.shape[0] // each
    spatial = ints([2 + i for i in axes])
    # The range of input elements that the blocks read: it may exceed the input on either side or leave out elements.
    starts = [f - t + 1 for f, t in zip(g.first, g.taps, strict=True)]
    ends = [f + b for f, b in zip(g.first, g.blocks, strict=True)]
    before, after = [max(-s, 0) for s in starts], [max(e - n, 0) for e, n in zip(ends, g.sizes, strict=True)]
    if any(s > 0 for s in starts) or any(e < n for e, n in zip(ends, g.sizes, strict=True)):
        x = onnx_op(op, "Slice", x, ints([max(s, 0) for s in starts]), ints(ends), spatial)
    y = onnx_op(op, "Conv", x, Tensor.constant(filters, weight.dtype), group=groups, pads=[*before, *after])
    if each > 1:
        if filters.shape[1] > 1:
            y = Tensor(y.spec, fusion_barrier(y.value, Reason.PHASES))
        # [N, F, s.., q..] to [N, F, q, s, ..]
        order = [0, 1, *(a for i in axes for a in (2 + len(axes) + i, 2 + i))]
        y = onnx_op(op, "Reshape", y, ints([-1, channels, *g.strides, *g.blocks]))
        y = onnx_op(op, "Transpose", y, perm=order)
        wide = [b * s for b, s in zip(g.blocks, g.strides, strict=True)]
        y = onnx_op(op, "Reshape", y, ints([-1, channels, *wide]))
        if wide != g.out:
            y = onnx_op(op, "Slice", y, ints(g.cut), ints([c + o for c, o in zip(g.cut, g.out, strict=True)]), spatial)
    if bias is None:
        return y
    return onnx_op(op, "Add", y, onnx_op(op, "Reshape", bias, ints([-1, *(1 for _ in axes)])))


def _dilated(weight: Array, dilations: Sequence[int]) -> Array:
    """The weight with zeros inserted between the taps."""
    if set(dilations) == {1}:
        return weight
    sizes = [d * (k - 1) + 1 for d, k in zip(dilations, weight.shape[2:], strict=True)]
    made = np.zeros((*weight.shape[:2], *sizes), weight.dtype)
    made[(slice(None), slice(None), *(slice(None, None, d) for d in dilations))] = weight
    return made


def _geometry(op: Node, x: Tensor, weight: Array) -> TransposedGeometry | None:
    """The sizes of a ConvTranspose; None for sizes that are not supported. Source: ONNX, ConvTranspose, `pads` and
    `output_shape`, and onnxruntime for sizes that ONNX leaves open."""
    if None in x.shape[1:] or len(x.shape) != weight.ndim or len(x.shape) < 3:
        return None
    a, space = op.attributes, len(x.shape) - 2
    kernel, sizes = list(weight.shape[2:]), [s or 0 for s in x.shape[2:]]
    strides, more = list(a.get("strides", [1] * space)), list(a.get("output_padding", [0] * space))
    pads = list(a.get("pads", [0] * 2 * space))
    mode = a.get("auto_pad", "NOTSET")
    if 0 in sizes or min(map(len, (strides, more))) != space:
        return None
    whole = [s * (n - 1) + k + m for s, n, k, m in zip(strides, sizes, kernel, more, strict=True)]
    asked = a.get("output_shape")
    if asked is not None or "SAME" in mode:
        # No pads if the requested size exceeds `whole`; only a stated output_shape is then filled up.
        out = [int(o) for o in asked[-space:]] if asked is not None else [
            min(s * n, w) for s, n, w in zip(strides, sizes, whole, strict=True)
        ]  # fmt: skip
        total = [max(w - o, 0) for w, o in zip(whole, out, strict=True)]
        front = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
    else:
        pads = [0] * 2 * space if mode == "VALID" else pads
        front = pads[:space]
        out = [w - p - q for w, p, q in zip(whole, front, pads[space:], strict=True)]
    if min(*front, *out) < 0:
        return None
    return TransposedGeometry(sizes, kernel, strides, front, out)


def _filters(weight: Array, groups: int, g: TransposedGeometry) -> Array:
    """`[C, F, k..]` as `[G * F * s.., C / G, taps..]`: for each phase every stride-th tap, in reverse order. Taps
    beyond the kernel are 0."""
    c, f = weight.shape[:2]
    axes = range(len(g.kernel))
    whole = np.zeros((c, f, *(t * s for t, s in zip(g.taps, g.strides, strict=True))), weight.dtype)
    whole[(slice(None), slice(None), *(slice(k) for k in g.kernel))] = weight
    split = whole.reshape(groups, c // groups, f, *(n for t, s in zip(g.taps, g.strides, strict=True) for n in (t, s)))
    last_first = split[(slice(None),) * 3 + (slice(None, None, -1), slice(None)) * len(axes)]
    order = [0, 2, *(4 + 2 * i for i in axes), 1, *(3 + 2 * i for i in axes)]
    return np.ascontiguousarray(last_first.transpose(order)).reshape(-1, c // groups, *g.taps)
