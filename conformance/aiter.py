"""AITER: products with per-row and per-channel scales, with block scales, batched, split along K, and grouped."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import qmlir
from qmlir.dialect.dtypes import DTYPES

from .case import (
    ACTIVATIONS,
    FP8,
    OUT_DTYPES,
    Case,
    Draw,
    F,
    Variant,
    fit,
    fit_product,
    read_batch,
    read_common,
    read_mnk,
    require,
    require_no_zero,
)
from .operands import draw_bias
from .program import Program
from .stream import Stream

R = qmlir.reference


def _pertoken(d: Draw, shape: tuple[int, ...], dtype: str, rounding: str = "half_even") -> tuple[Any, Any]:
    """Normally distributed values, quantised per row as `pertoken_quant` does: `scale = amax / largest code`."""
    x = d.normal(shape)
    if dtype == "i8":
        q, s, _ = R.dynamic_quantize(x, recipe="amax", rounding=rounding)
        return q, s
    kind = DTYPES[dtype].numpy
    s = (np.abs(x).max(-1, keepdims=True) / F(ml_dtypes.finfo(kind).max)).astype(F)
    return (x / s).astype(kind), s


def product(c: Case, d: Draw) -> Variant:
    read_common(c)
    m, n, k = read_mnk(c)
    batch = read_batch(c)
    a = c.pick(*c.word("a_dtype", {"i8": ("i8",), "i8|fp8": ("i8", "e4m3", "e4m3fnuz"), "fp8": FP8["fp8"]}))
    c.word("w_dtype", {"i8": None, "fp8": None, "same": None})
    require(c, "a_granularity", "per_token", None)
    require(c, "w_granularity", "per_channel", None)
    require_no_zero(c, "a_zero_point", "w_zero_point")
    out = c.pick(*c.word("out_dtype", {"bf16|f16": ("bf16", "f16"), "bf16": ("bf16",), "f16": ("f16",),
                                       "f32": ("f32",), "i32": ("i32",)}))  # fmt: skip
    # The first letter is for x, where `T` is row-major [M, K]; the second for w, where `N` is row-major [N, K].
    lhs_t, rhs_t = c.word("layout", {None: (False, True), "TN": (False, True), "TT": (False, False),
                                     "NN": (True, True), "NT": (True, False)})  # fmt: skip
    # The rounding of the quantiser that made the codes.
    rounding = c.word("rounding", {None: "half_even", "trunc (activation quantiser)": "trunc"})
    data = c.word("data", {None: "quant", "randn, pertoken_quant": "quant", "manual_seed(0)": "quant",
                           "randint(-20,20); scales rand+1e-6": "small"})  # fmt: skip
    m, n, cut, work = fit_product(m, n, k, int(np.prod(batch, initial=1)))
    if data == "small":
        x, w = d.ints((*batch, m, k), -20, 20), d.ints((*batch, n, k), -20, 20)
        xs, ws = d.uniform((*batch, m, 1), 1e-6, 1 + 1e-6), d.uniform((*batch, n, 1), 1e-6, 1 + 1e-6)
    else:
        (x, xs), (w, ws) = _pertoken(d, (*batch, m, k), a, rounding), _pertoken(d, (*batch, n, k), a)
    bias, stage = draw_bias(c, d, n, out)
    real = "f32" if out == "i32" else out
    p = Program()
    p.step("scaled_matmul", ("y",), {
        "lhs": np.swapaxes(x, -1, -2) if lhs_t else x, "lhs_scale": np.swapaxes(xs, -1, -2) if lhs_t else xs,
        "rhs": w if rhs_t else np.swapaxes(w, -1, -2), "rhs_scale": ws if rhs_t else np.swapaxes(ws, -1, -2),
        "bias": bias,
    }, lhs_transposed=lhs_t, rhs_transposed=rhs_t, bias_stage=stage, activation=c.word("activation", ACTIVATIONS),
        returned=out != "i32", out_dtype=real)  # fmt: skip
    if out == "i32":
        # Upstream scales in f32 and converts to i32; a qmlir result i32 is the raw accumulator.
        p.step("fptosi", ("codes",), {"input": "y"})
    return Variant(p, cut, work)


def blockscale(c: Case, d: Draw) -> Variant:
    read_common(c)
    m, n, k = read_mnk(c)
    dtype = c.pick(*c.word("a_dtype", {"fp8": FP8["fp8"]}))
    require(c, "w_dtype", "fp8")
    require(c, "a_granularity", "1x128")
    require(c, "w_granularity", "128x128")
    require(c, "group_size", None, 128)
    require(c, "bias", None)
    m, n, cut, work = fit_product(m, n, k)
    kind = DTYPES[dtype].numpy
    scale = d.uniform((-(-n // 128), k // 128), 0.005, 0.015)
    p = Program()
    if n % 128:
        # A block must divide its axis (section 1), so each scale is repeated for the rows of its block.
        scale = np.repeat(scale, 128, 0)[:n]
        p.notes.append(f"128 does not divide N = {n}: the 128x128 scales are given as 1x128")
    p.step("scaled_matmul", ("y",), {"lhs": d.normal((m, k)).astype(kind), "rhs": d.normal((n, k)).astype(kind),
                                     "lhs_scale": d.uniform((m, k // 128), 0.005, 0.015), "rhs_scale": scale},
           rhs_transposed=True, activation=c.word("activation", ACTIVATIONS),
           out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, cut, work)


def gather_scatter(c: Case, d: Draw) -> Variant:
    """Routed products of int8 codes: a weighted sum over experts with `none`, one row per expert with `swiglu`."""
    read_common(c)
    m, n, k = read_mnk(c)
    experts, topk = c.take("E"), c.take("topk")
    require(c, "a_dtype", "i8 smoothquant")
    require(c, "w_dtype", "i8")
    require(c, "a_granularity", "per_token")
    require(c, "w_granularity", "per_channel per expert")
    require(c, "bias", "f32[E,N]")
    rounding, of_weights = c.word("rounding", {"half_away (activation), half_even (weights)":
                                               ("half_away", "half_even")})  # fmt: skip
    activation = c.pick(*c.word("activation", {"none|swiglu (interleaved a[::2] gate, a[1::2] linear)":
                                               ("none", "swiglu")}))  # fmt: skip
    m, n, cut = fit(m, n, topk * k)
    # The weights' codes are drawn directly, so the rounding of their quantiser does not matter.
    assert of_weights == "half_even"
    w, ws = d.ints((experts, n, k), -127, 128), d.uniform((experts, n, 1), 0.5, 1.5) * F(k**-0.5 / 127)
    smooth = d.uniform((k,), 0.5, 1.5)
    p = Program()
    p.step("dynamic_quantize", ("q", "q_scale"), {"input": d.normal((m, k)) * smooth}, recipe="amax",
           rounding=rounding)  # fmt: skip
    gated = activation == "swiglu"
    p.step("grouped_matmul", ("y",), {
        "lhs": "q", "lhs_scale": "q_scale", "rhs": w, "rhs_scale": ws, "bias": d.normal((experts, n)),
        "expert_ids": draw_routing(d, m, topk, experts),
        "routing_weights": None if gated else d.uniform((m, topk), 0, 1),
    }, rhs_transposed=True, bias_stage="scaled", activation=activation,
        gate_layout="interleaved" if gated else None, out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, cut, m * n * k * topk)


def draw_routing(d: Draw, tokens: int, topk: int, experts: int) -> Any:
    """Draws distinct experts for each token, i32 [tokens, topk]."""
    return np.argsort(d.rng.random((tokens, experts)), 1)[:, :topk].astype(np.int32)


def _gmm(c: Case, d: Draw) -> Variant:
    read_common(c)
    m, n, k = read_mnk(c)
    groups = c.take("G")
    form = c.pick(*c.word("layout", {"rhs (G,K,N) row / col major; also transposed lhs (tgmm)":
                                     ("row", "col", "tgmm")}))  # fmt: skip
    dtype = c.pick(*c.word("a_dtype", {"f16|bf16": ("f16", "bf16")}))
    require(c, "w_dtype", "same")
    require(c, "out_dtype", "same")
    require(c, "bias", None)
    require(c, "activation", "none")
    require(c, "data", "seed 77; random group sizes incl. empty groups")
    kind = DTYPES[dtype].numpy
    cuts = np.sort(d.rng.integers(0, m + 1, groups - 2))
    sizes = np.diff([0, *cuts, m]).astype(np.int32)
    sizes = np.insert(sizes, 1, 0)  # at least one empty group
    p = Program()
    lhs = d.normal((m, k), kind)
    if form == "tgmm":
        # One product per group: its rows of lhs, transposed, times the same rows of rhs.
        rhs, at = d.normal((m, n), kind), np.concatenate([[0], np.cumsum(sizes)])
        for g in range(groups):
            rows = slice(at[g], at[g + 1])
            p.step("scaled_matmul", (f"y{g}",), {"lhs": lhs[rows], "rhs": rhs[rows]}, lhs_transposed=True,
                   out_dtype=dtype)  # fmt: skip
    else:
        rhs = d.normal((groups, k, n), kind)
        p.step("grouped_matmul", ("y",), {"lhs": lhs, "rhs": np.swapaxes(rhs, 1, 2) if form == "col" else rhs,
                                          "group_sizes": sizes},
               rhs_transposed=form == "col", out_dtype=dtype)  # fmt: skip
    return Variant(p, {}, m * n * k)


def grouped(c: Case, d: Draw) -> Variant:
    """A grouped product: AITER's, or the one whose published result has its own recipe for the data."""
    if c.fields["system"] != "qmlir_variant_of_AITER":
        return _gmm(c, d)
    read_common(c)
    m, n, k = read_mnk(c)
    groups = require(c, "G", 4)
    for side in ("a", "w"):
        require(c, f"{side}_dtype", "i8")
    require(c, "bias", None)
    require(c, "activation", "none")
    require(c, "rounding", "half_even")
    s = Stream()
    a, w = s((m, k), -128, 128).astype(np.int8), s((groups, n, k), -127, 128).astype(np.int8)
    p = Program()
    p.step("grouped_matmul", ("y",), {"lhs": a, "rhs": w, "group_sizes": np.array([5, 0, 17, 10], np.int32),
                                      "rhs_scale": (2.0 ** -(8 + np.arange(4))).astype(F).reshape(4, 1, 1)},
           rhs_transposed=True, out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, {}, m * n * k)
