"""ConvTranspose of dequantised values: for each element of its input, a convolution computes the block of `stride`
elements of the result that begins there; the elements of the blocks are then interleaved. Unlike in a convolution of
the input with zeros inserted between its elements, no zeros are multiplied.

With `o + pad = stride * q + r`: `y[o] = sum_j x[q - j] w[r + stride * j]`, a convolution for each phase `r`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....dialect.dtypes import Array
from ....ir import build
from ....spec import TensorSpec
from ...raising import PatternDeclined, Tensor
from ..node import Node, OnnxProduct
from .common import quantised_input
from .products import CODES, bias_of, taken


def transposed_product(op: Node) -> OnnxProduct:
    """The node as a `conv2d_q`.

    Raises:
        PatternDeclined: operands that are not both dequantised, more than one group, other than two spatial axes,
            dilation, a weight that is not constant, sizes that are dynamic.
    """
    import onnx

    x, w = quantised_input(op, 0), quantised_input(op, 1)
    if x is None or w is None:
        raise PatternDeclined("ConvTranspose of a dequantised value and a float has no integer form")
    weight, a = w.codes.array, op.attributes
    if weight is None or weight.ndim != 4 or int(a.get("group", 1)) != 1 or set(a.get("dilations", [1])) != {1}:
        raise PatternDeclined(
            "ConvTranspose has an integer form for a constant weight, two axes, one group and no dilation"
        )
    if w.codes.dtype not in CODES or x.codes.dtype not in CODES or not x.per_tensor or x.block or w.block:
        raise PatternDeclined(
            f"x is quantised {x.described()} and w {w.described()}; x is raised per tensor and w per filter"
        )
    if not w.per_tensor and w.axis != 1:
        raise PatternDeclined(f"w is quantised per axis {w.axis}; filters are along axis 1")
    if None in x.codes.shape[1:] or "output_shape" in a or a.get("auto_pad", "NOTSET") != "NOTSET":
        raise PatternDeclined("ConvTranspose has an integer form for static sizes and stated pads")
    strides = [int(s) for s in a.get("strides", [1, 1])]
    pads, more = [int(p) for p in a.get("pads", [0] * 4)], [int(p) for p in a.get("output_padding", [0, 0])]
    kernel, sizes = weight.shape[2:], [s or 0 for s in x.codes.shape[2:]]
    bias, nodes = bias_of(op, 2, x, w)
    parameters = [w.scale, w.zero, bias]
    if any(p is not None and p.array is None for p in parameters):
        raise PatternDeclined("ConvTranspose has an integer form for constant scales, zero points and bias")
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    out = [s * (n - 1) + k + m - pads[i] - pads[2 + i]
           for i, (s, n, k, m) in enumerate(zip(strides, sizes, kernel, more, strict=True))]  # fmt: skip
    blocks = [-(-(out[i] + pads[i]) // strides[i]) for i in range(2)]
    after = [blocks[i] - sizes[i] for i in range(2)]
    if min(*after, *out) < 0:
        raise PatternDeclined("ConvTranspose whose pads exceed a block of `stride` elements")
    filters = _phases(weight, w.zero, strides, taps)
    each = strides[0] * strides[1]
    scale, zero, bias = (None if p is None else _per_phase(p, each) for p in parameters)
    channels = filters.shape[0] // each

    def finish(t: Tensor) -> Tensor:
        """`[N, F * sh * sw, Qh, Qw]` to `[N, F, H, W]`."""

        def made(kind: str, value: Tensor, *rest: Sequence[int], **attributes: object) -> Tensor:
            given = [onnx.helper.make_attribute(k, v) for k, v in attributes.items()]
            done: Tensor = op.graph.torch_op(
                kind, [value, *(Tensor.constant(np.asarray(r, np.int64)) for r in rest)], given, op
            )
            return done

        whole = [strides[i] * blocks[i] for i in range(2)]
        if each > 1:
            n = build.dims(t.value)[0]
            split = build.expand(t.value, [[n], [channels, *strides], [blocks[0]], [blocks[1]]])
            moved = build.transpose(split, (0, 1, 4, 2, 5, 3))
            value = build.collapse(moved, [[0], [1], [2, 3], [4, 5]])
            t = Tensor(TensorSpec((t.shape[0], channels, *whole), t.dtype), value)
        if any(pads[:2]) or whole != out:
            t = made("Slice", t, pads[:2], [pads[i] + out[i] for i in range(2)], [2, 3])
        return t

    arguments = {
        "input": x.codes, "weight": Tensor.constant(filters, w.codes.dtype), "input_layout": "NCHW",
        "weight_layout": "FCHW", "strides": (1, 1), "dilations": (1, 1),
        "padding": (taps[0] - 1, taps[1] - 1, after[0], after[1]), "groups": 1,
        "input_zero_point": x.zero, "weight_zero_point": zero,
    }  # fmt: skip
    assert scale is not None
    return OnnxProduct("conv2d_q", arguments, x.scale, scale, (x.scale, scale), bias, (*taken(x, w), *nodes), finish)


def _phases(weight: Array, zero: Tensor | None, strides: Sequence[int], taps: Sequence[int]) -> Array:
    """`[C, F, KH, KW]` as `[F * sh * sw, C, taps, taps]`: for each phase every stride-th tap, in reverse order. Taps
    beyond the kernel are the code of 0."""
    c, f = weight.shape[:2]
    whole = np.zeros((c, f, taps[0] * strides[0], taps[1] * strides[1]), weight.dtype)
    if zero is not None and zero.array is not None:
        whole += zero.array.reshape(-1, 1, 1).astype(weight.dtype)
    whole[:, :, : weight.shape[2], : weight.shape[3]] = weight
    split = whole.reshape(c, f, taps[0], strides[0], taps[1], strides[1])[:, :, ::-1, :, ::-1]
    return np.ascontiguousarray(split.transpose(1, 3, 5, 0, 2, 4)).reshape(-1, c, *taps)


def _per_phase(t: Tensor, times: int) -> Tensor:
    """The values of each filter, repeated for each of its phases."""
    if t.array is None or not t.shape:
        return t
    return Tensor.constant(np.repeat(t.array.reshape(-1), times), t.dtype)
