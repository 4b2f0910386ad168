"""conv2d_q (docs/semantics.md, section 4)."""

from __future__ import annotations

import math

import numpy as np

from ..dtypes import Array
from ..ops.common import with_bounds
from ..ops.conv2d_q import FILTER_AXES, Conv2dQOp
from .epilogue import ReferenceEpilogue
from .matmul import make_side, sums
from .values import F32

_DEFAULTS = Conv2dQOp.DEFAULTS


def filter_parameter(x: Array | None, layout: str) -> Array | None:
    """Reshape a per-filter vector `[F]` to the filter's layout: `[F,1,1,1]` or `[1,1,1,F]`."""
    if x is None or np.ndim(x) != 1:
        return x
    return np.asarray(x).reshape((1, 1, 1, -1) if layout == "HWCF" else (-1, 1, 1, 1))


def _to_nhwc(epilogue: dict[str, Array | np.generic | float | str]) -> dict[str, Array | np.generic | float | str]:
    """Transpose epilogue operands of two or more axes from the result's layout NCHW; `[F]` is one value per filter."""
    out = dict(epilogue)
    for name in ("bias", "c", "act_scale", "out_scale", "out_multiplier", "out_zero_point"):
        value = out.get(name)
        if value is not None and np.ndim(value) >= 2:
            full = np.asarray(value).reshape((1,) * (4 - np.ndim(value)) + np.shape(value))
            out[name] = np.moveaxis(full, 1, -1)
    return out


def conv2d_q(
    input: Array,
    weight: Array,
    *,
    input_scale: Array | None = None,
    weight_scale: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    input_dtype: str | None = None,
    weight_dtype: str | None = None,
    weight_packing: str = _DEFAULTS["weight_packing"],
    weight_zero_mode: str | None = None,
    input_zero_mode: str | None = None,
    input_layout: str = _DEFAULTS["input_layout"],
    weight_layout: str = _DEFAULTS["weight_layout"],
    strides: tuple[int, int] = _DEFAULTS["strides"],
    dilations: tuple[int, int] = _DEFAULTS["dilations"],
    padding: tuple[int, int, int, int] = _DEFAULTS["padding"],
    groups: int = _DEFAULTS["groups"],
    transposed: bool = _DEFAULTS["transposed"],
    output_padding: tuple[int, int] = _DEFAULTS["output_padding"],
    codebook: Array | None = None,
    input_global_scale: Array | None = None,
    weight_global_scale: Array | None = None,
    compute_dtype: str | None = None,
    **epilogue: Array | np.generic | float | str,
) -> Array:
    """Input `[N,H,W,C]` or `[N,C,H,W]`; weight `[F,KH,KW,C/g]`, `[KH,KW,C/g,F]` or `[F,C/g,KH,KW]`.

    `padding` is `(top, left, bottom, right)` and adds the real value 0. A transposed convolution takes the same
    weight shapes, with F the output channels, and follows torch's ConvTranspose2d.
    """
    e = ReferenceEpilogue(**with_bounds(_to_nhwc(epilogue) if input_layout == "NCHW" else epilogue))
    weight_scale, weight_zero_point = (
        filter_parameter(weight_scale, weight_layout),
        filter_parameter(weight_zero_point, weight_layout),
    )
    a = make_side("input", np.asarray(input), input_dtype, input_scale, input_zero_point, input_zero_mode, "none",
                  False, None, global_scale=input_global_scale)  # fmt: skip
    channels = np.shape(input)[1 if input_layout == "NCHW" else 3] // groups  # not known from the bytes of packed codes
    b = make_side("weight", np.asarray(weight), weight_dtype, weight_scale, weight_zero_point, weight_zero_mode,
                  weight_packing, False, None if weight_packing == "none" else channels, codebook,
                  weight_global_scale)  # fmt: skip
    weight_only = a.plain or b.plain
    if weight_only:
        to = compute_dtype or (a if a.plain else b).dtype.name
        x, w = a.real(to), b.real(to)
    else:
        x, w = a.numbers, b.numbers
    x = np.moveaxis(x, 1, -1) if input_layout == "NCHW" else x
    w = np.transpose(w, FILTER_AXES[weight_layout])
    acc = sums(
        lambda x, w: _convolve(x, w, strides, dilations, padding, groups, transposed, output_padding),
        x, w, math.prod(w.shape[1:]),
    )  # fmt: skip
    if a.integer and b.integer:
        acc = e.acc_bias(acc)
    y = acc.astype(F32)
    if e.out_dtype == "i32":
        out = e.raw(acc)
    else:
        if not weight_only and (a.scale is not None or b.scale is not None):
            sa = F32(1) if a.scale is None else _scale_per_image(a.scale)
            sb = F32(1) if b.scale is None else np.transpose(b.scale, FILTER_AXES[weight_layout])[:, 0, 0, 0]
            y = y * (sa * sb)
        if not weight_only:
            for g in (input_global_scale, weight_global_scale):
                if g is not None:
                    y = y * np.asarray(g).astype(F32)
        out = e.finish(y)
    return np.ascontiguousarray(np.moveaxis(out, -1, 1)) if input_layout == "NCHW" else out


def _scale_per_image(scale: Array) -> Array:
    """The input's expanded scale as one value per image, `[N,1,1,1]`."""
    return scale[:, :1, :1, :1]


def _convolve(
    x: Array,
    w: Array,
    strides: tuple[int, int],
    dilations: tuple[int, int],
    padding: tuple[int, int, int, int],
    groups: int,
    transposed: bool,
    output_padding: tuple[int, int],
) -> Array:
    """Convolve NHWC with FHWC, as matrix products of patches."""
    top, left, bottom, right = padding
    (sh, sw), (dh, dw) = strides, dilations
    n, h, width, c = x.shape
    f, kh, kw, cg = w.shape
    if transposed:
        # A transposed convolution is a stride-1 convolution of the input with stride - 1 zeros between its pixels, and
        # the kernel rotated by 180 degrees; padding p becomes dilation*(k-1) - p.
        spread = np.zeros((n, max(0, (h - 1) * sh + 1), max(0, (width - 1) * sw + 1), c), x.dtype)
        spread[:, ::sh, ::sw] = x
        x, w = spread, w[:, ::-1, ::-1]
        top, left = dh * (kh - 1) - top, dw * (kw - 1) - left
        bottom = dh * (kh - 1) - bottom + output_padding[0]
        right = dw * (kw - 1) - right + output_padding[1]
        sh = sw = 1
        crop = [max(0, -p) for p in (top, left, bottom, right)]
        x = x[:, crop[0] : x.shape[1] - crop[2], crop[1] : x.shape[2] - crop[3]]
        top, left, bottom, right = (max(0, p) for p in (top, left, bottom, right))
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (dh * (kh - 1) + 1, dw * (kw - 1) + 1), (1, 2))
    windows = windows[:, ::sh, ::sw, :, ::dh, ::dw]  # [N, OH, OW, C, KH, KW]
    oh, ow = windows.shape[1:3]
    out = np.empty((n, oh, ow, f), x.dtype)
    fg = f // groups
    for g in range(groups):
        patch = windows[:, :, :, g * cg : (g + 1) * cg].reshape(n * oh * ow, cg * kh * kw)
        kernel = np.transpose(w[g * fg : (g + 1) * fg], (0, 3, 1, 2)).reshape(fg, -1)
        out[..., g * fg : (g + 1) * fg] = (patch @ kernel.T).reshape(n, oh, ow, fg)
    return out
