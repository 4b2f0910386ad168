"""AITER: mixture-of-experts layers, as two routed products in one program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qmlir.dialect.dtypes import DTYPES
from qmlir.dialect.enums import GATED

from .aiter import draw_routing
from .case import ACTIVATIONS, OUT_DTYPES, Case, Draw, F, Variant, fit, read_common, read_mnk, require
from .program import Program


@dataclass(frozen=True)
class Experts:
    """How the two products of a mixture of experts are quantised."""

    codes: str  # dtype of the activations: "i8", "bf16", ...
    weights: str
    smooth: bool = False


_MOE = {
    "none": (Experts("bf16", "bf16"),),
    "int8 per-token": (Experts("i8", "i8"),),
    "fp8 per-token": (Experts("e4m3", "e4m3"), Experts("e4m3fnuz", "e4m3fnuz")),
    "int8 smoothquant": (Experts("i8", "i8", True),),
    "fp8 smoothquant": (Experts("e4m3", "e4m3", True), Experts("e4m3fnuz", "e4m3fnuz", True)),
    "w int4, a fp8 smoothquant": (Experts("e4m3", "i4", True), Experts("e4m3fnuz", "i4", True)),
    "bf16|fp8|i8|mxfp4": (Experts("bf16", "bf16"), Experts("e4m3", "e4m3"), Experts("e4m3", "i4"),
                          Experts("i8", "i8"), Experts("bf16", "e2m1")),
}  # fmt: skip


def fused_moe(c: Case, d: Draw) -> Variant:
    """Two routed products: x -> W1 -> activation -> W2, weighted over the experts."""
    read_common(c)
    m, n, k = read_mnk(c)
    experts, topk = c.take("E"), c.take("topk")
    scheme = c.pick(*c.word("a_dtype", _MOE))
    require(c, "w_dtype", *(set(_MOE) - {"bf16|fp8|i8|mxfp4"}), "same|int4")
    require(c, "bias", None)
    activation = c.pick(*c.word("activation", {
        "none": ("none",),
        "silu|gelu gated (gate first half, up second) or ungated gelu": ("swiglu", "geglu", "gelu"),
    }))  # fmt: skip
    # With a gate the first product is twice as wide.
    per = (3 if activation in GATED else 2) * topk * k
    m, n, cut = fit(m, n, per)
    p = Program()
    add_experts(p, d, scheme, activation, (m, n, k, experts, topk), "bf16")
    return Variant(p, cut, per * m * n)


def add_experts(
    p: Program, d: Draw, scheme: Experts, activation: str, sizes: tuple[int, int, int, int, int], dtype: str
) -> None:  # fmt: skip
    tokens, inner, outer, experts, topk = sizes
    gated = activation in GATED
    ids = p.value("expert_ids", draw_routing(d, tokens, topk, experts))
    routing = d.uniform((tokens, topk), 0, 1)
    first = {**_rows(p, d, scheme, "x", tokens, outer, ids), **_expert_weight(d, scheme, experts, inner * (1 + gated),
                                                                             outer)}  # fmt: skip
    smooth = d.uniform((tokens, topk, inner), 0.5, 1.5) if scheme.smooth else None
    quantised = scheme.codes not in ("bf16", "f16")
    p.step("grouped_matmul", ("h",), {**first, "expert_ids": ids, "act_scale": smooth}, rhs_transposed=True,
           activation=activation, out_dtype="f32" if quantised else dtype, **_weight_attributes(scheme))  # fmt: skip
    second = _quantised_rows(p, scheme, "h") if quantised else {"lhs": "h"}
    p.step("grouped_matmul", ("y",), {**second, **_expert_weight(d, scheme, experts, outer, inner), "expert_ids": ids,
                                      "routing_weights": routing},
           rhs_transposed=True, out_dtype=dtype, **_weight_attributes(scheme))  # fmt: skip


def _rows(p: Program, d: Draw, scheme: Experts, name: str, tokens: int, width: int, ids: str) -> dict[str, Any]:
    """The activations of the first product, quantised by a step of the program if the scheme quantises them."""
    x = d.normal((tokens, width))
    if scheme.codes in ("bf16", "f16"):
        return {"lhs": x.astype(DTYPES[scheme.codes].numpy)}
    if scheme.smooth:
        # Each expert has its own smoothing factors, so a token gets one row of x for each of its experts.
        factors = d.uniform((int(p.arrays[ids].max()) + 1, width), 0.5, 1.5)[p.arrays[ids]]
        p.step("mulf", (name,), {"input": np.repeat(x[:, None], p.arrays[ids].shape[1], 1), "factor": factors})
    else:
        p.value(name, x)
    return _quantised_rows(p, scheme, name)


def _quantised_rows(p: Program, scheme: Experts, name: str) -> dict[str, Any]:
    p.step("dynamic_quantize", (f"{name}_q", f"{name}_scale"), {"input": name}, granularity="token", recipe="amax",
           out_dtype=scheme.codes)  # fmt: skip
    return {"lhs": f"{name}_q", "lhs_scale": f"{name}_scale"}


def _weight_attributes(scheme: Experts) -> dict[str, Any]:
    if DTYPES[scheme.weights].bits < 8:
        return {"rhs_dtype": scheme.weights, "rhs_packing": "low_first"}
    return {}


def _expert_weight(d: Draw, scheme: Experts, experts: int, n: int, k: int) -> dict[str, Any]:
    """A weight `[E, N, K]` with per-channel scales, or for fp4 with one scale per 32 codes (MX)."""
    shape, t = (experts, n, k), DTYPES[scheme.weights]
    if scheme.weights in ("bf16", "f16"):
        return {"rhs": d.uniform(shape, -(k**-0.5), k**-0.5, t.numpy)}
    # Any byte is a pair of 4-bit codes.
    codes = d.ints((experts, n, k // t.per_byte), 0, 256, np.uint8) if t.bits < 8 else d.codes(shape, scheme.weights)
    if scheme.weights == "e2m1":
        e8m0 = DTYPES["e8m0"].numpy
        return {
            "rhs": codes,
            "rhs_scale": (2.0 ** d.ints((experts, n, k // 32), -9, -5, np.int64)).astype(F).astype(e8m0),
        }
    return {"rhs": codes, "rhs_scale": d.uniform((experts, n, 1), 0.5, 1.5) * F(k**-0.5 / (t.hi or 3))}


def derived_moe(c: Case, d: Draw) -> Variant:
    """int8 weights, relu after the first product, f32 results; the second product takes the first's f32 result."""
    read_common(c)
    m, n, k = read_mnk(c)
    experts, topk = c.take("E"), c.take("topk")
    for side in ("a", "w"):
        require(c, f"{side}_dtype", "i8")
    require(c, "bias", None)
    require(c, "rounding", "half_even")
    p = Program()
    ids = p.value("expert_ids", draw_routing(d, m, topk, experts))
    p.step("grouped_matmul", ("h",), {"lhs": d.codes((m, k), "i8"), "rhs": d.codes((experts, n, k), "i8"),
                                      "lhs_scale": F(2**-7), "rhs_scale": F(2**-7), "expert_ids": ids},
           rhs_transposed=True, activation=c.word("activation", ACTIVATIONS), out_dtype="f32")  # fmt: skip
    p.step("grouped_matmul", ("y",), {"lhs": "h", "rhs": d.codes((experts, k, n), "i8"), "rhs_scale": F(2**-7),
                                      "expert_ids": ids, "routing_weights": d.uniform((m, topk), 0, 1)},
           rhs_transposed=True, out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, {}, 2 * m * n * k * topk)
