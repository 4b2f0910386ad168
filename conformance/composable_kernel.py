"""Composable Kernel: requantised products and convolutions with the data of its examples, and grouped products."""

from __future__ import annotations

from typing import Any

import numpy as np

from qmlir.dialect.dtypes import DTYPES

from .case import (
    ACTIVATIONS,
    ROUNDINGS,
    Case,
    Draw,
    F,
    UnknownField,
    Variant,
    fit_product,
    read_common,
    read_mnk,
    read_scales,
    require,
    require_no_zero,
)
from .convolutions import read_geometry
from .program import Program
from .stream import Stream

# Data that "derived" cases do not state but take from the recipe of their published results: code ranges and scales.
_DERIVED: dict[str, dict[str, Any]] = {
    "qmlir14_gemm_scale2e-4": {"range": (-128, 127)},
    "qmlir14_gemm_bias_relu_scale2e-4": {"range": (-128, 127)},
    "qmlir14_gemm_scale2e-4_half_even": {"range": (-128, 127)},
    "qmlir14_gemm_scale2e-4_half_away": {"range": (-128, 127)},
    "qmlir14_gemm_dl_half_even": {"range": (-5, 5)},
    "qmlir14_gemm_dl_half_away": {"range": (-5, 5)},
    "qmlir40_perlayer_scale0.1": {"range": (-5, 5), "multiplier": 0.1},
    "qmlir40_bias_tanh_perlayer": {"range": (-128, 127), "scale_acc": 2.0**-18, "multiplier": 127.0},
    "qmlir40_relu_perchannel": {"range": (-128, 127), "multiplier": "channel"},
    "qmlir40_bias_relu_perchannel": {"range": (-128, 127), "multiplier": "channel"},
    "qmlir40_bias_tanh_perchannel": {"range": (-128, 127), "scale_acc": "channel before tanh", "multiplier": 127.0},
}


_GEMM_LAYOUTS = {
    "A row-major MxK, B col-major KxN (= NxK rows), E row-major": (False, True),
    "A col-major, B row-major, E row-major": (True, False),
    "A MxK, B KxN logical": (False, False),
    "mk_kn_mn": (False, False),
    "mk_nk_mn": (False, True),
    "km_kn_mn": (True, False),
    "km_nk_mn": (True, True),
}


def _range(data: Any, key: str, default: tuple[int, int] | None) -> tuple[int, int]:
    if data is None and default is not None:
        return default
    lo, hi = data[key]
    return lo, hi


def _known_generator(c: Case, data: Any) -> None:
    if data is not None and data.get("gen") not in (None, "glibc rand seed 1", "glibc rand seed 1, rand%(hi-lo)+lo"):
        raise UnknownField(f"{c.id}: data generator {data['gen']!r} has no meaning here")
    left = set(data or ()) - {"gen", "A", "B", "x", "w", "bias"}
    if left:
        raise UnknownField(f"{c.id}: data has {sorted(left)}, which has no meaning here")


def gemm(c: Case, d: Draw) -> Variant:
    read_common(c)
    m, n, k = read_mnk(c)
    lhs_t, rhs_t = c.word("layout", _GEMM_LAYOUTS)
    for side in ("a", "w"):
        require(c, f"{side}_dtype", "i8")
        require(c, f"{side}_granularity", "per_tensor")
    require_no_zero(c, "a_zero_point", "w_zero_point")
    data, derived = c.take("data"), _DERIVED.get(c.id, {}).get("range", (-5, 5))
    _known_generator(c, data)
    s = Stream()
    a = s((m, k), *_range(data, "A", derived)).astype(np.int8)
    b = s((k, n), *_range(data, "B", derived)).astype(np.int8)
    i32_bias = {None: False, "i32[N]": True, "i32[N] added to the i32 accumulator": True}
    bias = s((n,), *_range(data, "bias", derived)).astype(np.int32) if c.word("bias", i32_bias) else None
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a.T if lhs_t else a, "rhs": b.T if rhs_t else b, "bias": bias,
                                     "out_multiplier": F(read_scales(c, "requant")["requant"])},
           lhs_transposed=lhs_t, rhs_transposed=rhs_t, bias_stage="acc" if bias is not None else None,
           activation=c.word("activation", ACTIVATIONS), out_dtype=require(c, "out_dtype", "i8"),
           rounding=c.word("rounding", ROUNDINGS), clamp=tuple(c.take("saturation")))  # fmt: skip
    return Variant(p, {}, m * n * k)


def conv(c: Case, d: Draw) -> Variant:
    read_common(c)
    v, attributes = read_geometry(c)
    require(c, "layout", "x NHWGC, w KYXGC, out NHWGK", "x NHWGC, w KYXGC, out NHWGK; golden hashed [G,N,K,Ho,Wo]")
    for side in ("a", "w"):
        require(c, f"{side}_dtype", "i8")
    require(c, "a_granularity", "per_tensor")
    per_channel = require(c, "w_granularity", "per_tensor", "per_channel") == "per_channel"
    require_no_zero(c, "a_zero_point", "w_zero_point")
    data, derived = c.take("data"), _DERIVED.get(c.id, {})
    _known_generator(c, data)
    s = Stream()
    # Values are drawn in the logical order of the axes, [N, C, H, W] and [K, C, Y, X].
    x = s((v["N"], v["C"], v["H"], v["W"]), *_range(data, "x", derived.get("range"))).astype(np.int8)
    w = s((v["K"], v["C"] // v["groups"], v["R"], v["S"]), *_range(data, "w", derived.get("range"))).astype(np.int8)
    bias = None
    if c.word("bias", {None: False, "i32[K]": True}):
        bias = s((v["K"],), *_range(data, "bias", derived.get("range"))).astype(np.int32)
    scales = read_scales(c, "requant", "requant[k]", "scale_acc", "scale_acc[k]", "scale_z_inv")
    activation = c.word("activation", ACTIVATIONS)
    if scales:
        stated = (scales.get("scale_acc", scales.get("scale_acc[k]")),
                  scales.get("requant", scales.get("requant[k]", scales.get("scale_z_inv"))))  # fmt: skip
    else:
        stated = derived.get("scale_acc"), derived["multiplier"]
    channel = ((1 + np.arange(v["K"]) / v["K"]) * 2.0**-12).astype(F)
    # Upstream draws its scales as integers in [0, 1), so all are 0. Before a tanh, scales bring the sums to about 1.
    named = {"drawn in [0,1) -> 0": np.zeros(v["K"], F), "channel": channel, "channel before tanh": channel / 64}
    before, after = (named[z] if isinstance(z, str) else z for z in stated)
    if per_channel != any(np.ndim(z) == 1 for z in (before, after) if z is not None):
        raise UnknownField(f"{c.id}: w_granularity does not fit the scales")
    p = Program()
    p.step("conv2d_q", ("y",), {"input": np.transpose(x, (0, 2, 3, 1)), "weight": np.transpose(w, (0, 2, 3, 1)),
                                "bias": bias, "weight_scale": None if before is None else np.asarray(before, F),
                                "out_multiplier": np.asarray(after, F)},
           **attributes, bias_stage="acc" if bias is not None else None, activation=activation,
           out_dtype=require(c, "out_dtype", "i8"), rounding=c.word("rounding", ROUNDINGS),
           clamp=tuple(c.take("saturation")))  # fmt: skip
    return Variant(p, {}, v["work"])


def group(c: Case, d: Draw) -> Variant:
    """One of the 16 groups of different sizes, as a grouped product with a single group."""
    read_common(c)
    m, n, k = read_mnk(c)
    require(c, "G", 16)
    dtype = c.word("a_dtype", {"f16 / i8 variants": ("f16", "i8")})
    require(c, "w_dtype", "same")
    require(c, "bias", None)
    dtype = c.pick(*dtype)
    lo, hi = c.take("data")
    m, n, cut, work = fit_product(m, n, k)
    kind = DTYPES[dtype].numpy
    p = Program()
    p.step("grouped_matmul", ("y",), {"lhs": d.ints((m, k), lo, hi).astype(kind),
                                      "rhs": d.ints((1, k, n), lo, hi).astype(kind),
                                      "group_sizes": np.array([m], np.int32)},
           out_dtype="i32" if dtype == "i8" else "f16", activation=c.word("activation", ACTIVATIONS))  # fmt: skip
    return Variant(p, cut, work)
