"""Products of ExecuTorch's Vulkan backend, BitBLAS and Composable Kernel; the choice of quantisation parameters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import qmlir
from qmlir.dialect.dtypes import DTYPES

from .aiter import product
from .case import (
    ACTIVATIONS,
    OUT_DTYPES,
    ROUNDINGS,
    Case,
    Draw,
    F,
    UnknownField,
    Variant,
    fit_product,
    read_batch,
    read_common,
    read_mnk,
    read_scales,
    require,
    require_saturation,
)
from .operands import draw_activations, draw_bias, draw_weight, quantised_activations, requantise_and_dequant
from .program import Program
from .stream import Stream

R = qmlir.reference


def dequant_matmul(c: Case, d: Draw) -> Variant:
    """Products of float activations and quantised weights."""
    read_common(c)
    m, n, k = read_mnk(c)
    lhs = c.pick(*c.word("a_dtype", {"f32": ("f32",), "f16": ("f16",), "bf16": ("bf16",), "f32|f16": ("f32", "f16"),
                                     "f16|i8": ("f16", "i8")}))  # fmt: skip
    out = c.word("out_dtype", {"f32": "f32", "f16": "f16", "same": lhs, "f16|i32": "f16" if lhs == "f16" else "i32"})
    # The rounding stated for a weight-only product is that of its output, or of the quantiser of a related case.
    c.word("rounding", {**ROUNDINGS, "half_even (choose_qparams nearbyint); round() for q": None})
    require_saturation(c)
    known = _derived_bitblas(c, d)
    if known is not None:
        return known
    m, n, cut, work = fit_product(m, n, k)
    require(c, "a_granularity", None)
    scaled = _says_scaled(c)
    kind = DTYPES[lhs].numpy if lhs in ("f16", "bf16") else F
    b = draw_weight(c, d, n, k, kind, scaled)
    if lhs == "i8":
        a = d.codes((m, k), "i8")
        # The output `i32` is the raw accumulator, so it belongs to the product without scales.
        out = "f16" if "rhs_scale" in b.operands else "i32"
    else:
        a = draw_activations(c, d, (m, k), lhs)
    bias, stage = draw_bias(c, d, n, out)
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a, **b.operands, "bias": bias}, **b.attributes, bias_stage=stage,
           activation=c.word("activation", ACTIVATIONS), out_dtype=out)  # fmt: skip
    return Variant(p, cut, work)


# If no field says whether there is a scale, the name of a BitBLAS case does.
_SCALED_BY_NAME = re.compile(r"_(s1|scale|scale_zeros_original)(_|$)")


def _says_scaled(c: Case) -> bool | None:
    if c.fields["system"] != "BitBLAS":
        return None
    if c.fields.get("w_granularity") is not None or c.fields.get("group_size") not in (None, -1):
        return True
    return bool(_SCALED_BY_NAME.search(c.id)) or c.fields.get("w_zero_point") is not None


def _derived_bitblas(c: Case, d: Draw) -> Variant | None:
    """The program of a case whose published result has its own recipe, in which all scales are powers of two."""
    if c.fields["system"] != "qmlir_variant_of_BitBLAS":
        return None
    m, n, k = read_mnk(c)
    group = c.take("group_size")
    require(c, "w_dtype", "u4")
    require(c, "bias", None)
    require(c, "activation", "none")
    s = Stream()
    a, q = (s((m, k), -4, 5) / 8).astype(np.float16), s((n, k), 0, 16).astype(np.uint8)
    g, row = np.arange(k // group)[None], np.arange(n)[:, None]
    scale = (2.0 ** -(3 + (row + g) % 3)).astype(np.float16)
    zero = ((3 * row + 5 * g) % 16).astype(np.int32)
    form = c.id.removeprefix("qmlir_bitblas_w4a16_g128_")
    extra: dict[str, Any] = {
        "original": {"rhs_scale": scale, "rhs_zero_point": zero},
        "rescale": {"rhs_scale": scale, "rhs_zero_point": (zero / 8).astype(np.float16)},
        "plain_uint4": {},
        "plain_int4": {},
    }[form]
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": q, **extra}, rhs_transposed=True, rhs_dtype="u4",
           rhs_zero_mode={"original": "int", "rescale": "rescale", "plain_int4": "offset_int"}.get(form),
           out_dtype="f16")  # fmt: skip
    return Variant(p, {}, m * n * k)


def matmul(c: Case, d: Draw) -> Variant:
    """Products of codes without scales."""
    read_common(c)
    m, n, k = read_mnk(c)
    lhs = c.word("a_dtype", {"i8": "i8", "i4": "i4", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2"})
    c.word("rounding", ROUNDINGS)
    require(c, "a_granularity", None)
    m, n, cut, work = fit_product(m, n, k)
    stream = c.fields["system"] == "qmlir_variant_of_BitBLAS"
    b = draw_weight(c, d, n, k)
    a = d.ints((m, k), 0, 4) if c.take("data") == "A randint(0,4), W randint(0,2 or 4)" else d.codes((m, k), lhs)
    if stream:
        bits = DTYPES[b.attributes["rhs_dtype"]].bits
        s = Stream()
        a = s((m, k), -128, 128).astype(np.int8)
        for width in (4, 2, 1):
            w = s((n, k), 0, 1 << width)
            if width == bits:
                break
        # A 1-bit code q is stored unchanged and represents 2q - 1.
        q = (w if bits == 1 else w - (1 << (bits - 1))).astype(np.int8)
        b.operands["rhs"] = R.pack(q, b.attributes["rhs_dtype"], b.attributes["rhs_packing"])
    require(c, "bias", None)
    p = Program()
    p.step("scaled_matmul", ("y",), {"lhs": a, **b.operands}, **b.attributes, lhs_dtype=lhs,
           activation=c.word("activation", ACTIVATIONS), out_dtype=c.word("out_dtype", OUT_DTYPES))  # fmt: skip
    return Variant(p, cut, work)


def scaled_matmul(c: Case, d: Draw) -> Variant:
    """Products of codes with scales; a step of the program may quantise the activations."""
    system = c.fields["system"]
    if system == "AITER":
        return product(c, d)
    if system in ("qmlir_variant_of_AITER", "qmlir_variant_of_ETVK"):
        return _derived_product(c, d)
    read_common(c)
    m, n, k = read_mnk(c)
    batch = read_batch(c)
    m, n, cut, work = fit_product(m, n, k, int(np.prod(batch, initial=1)))
    out = c.word("out_dtype", OUT_DTYPES)
    b = draw_weight(c, d, n, k, F)
    bias, stage = draw_bias(c, d, n, out)
    p = Program()
    operands, extra = quantised_activations(c, d, p, (*batch, m, k))
    scales = read_scales(c, "a", "w", "out", "D0", "D1", "epilogue")
    if "epilogue" in scales and scales["epilogue"] != "f16(c)*d0*d1":
        raise UnknownField(f"{c.id}: epilogue {scales['epilogue']!r} has no meaning here")
    if scales.get("out") is not None:
        if scales["out"] != "per token U[.1,.2), out zp [-10,10)":
            raise UnknownField(f"{c.id}: the output's scale {scales['out']!r} has no meaning here")
        operands |= {"out_scale": d.uniform((*batch, m, 1), 0.1, 0.2),
                     "out_zero_point": d.ints((*batch, m, 1), -10, 10, np.int32)}  # fmt: skip
        extra |= {"rounding": c.word("rounding", ROUNDINGS), "clamp": tuple(c.take("saturation"))}
    require_saturation(c)
    p.step("scaled_matmul", ("y",), {**operands, **b.operands, "bias": bias}, **b.attributes, **extra, bias_stage=stage,
           activation=c.word("activation", ACTIVATIONS), out_dtype=out)  # fmt: skip
    return Variant(p, cut, work)


def requantised(c: Case, d: Draw) -> Variant:
    """Statically quantised input and output: quantize, product with requantisation, dequant."""
    read_common(c)
    m, n, k = read_mnk(c)
    m, n, cut, work = fit_product(m, n, k)
    b = draw_weight(c, d, n, k)
    p = Program()
    operands, _ = quantised_activations(c, d, p, (m, k))
    bias, stage = draw_bias(c, d, n, "i8")
    activation = c.pick(*c.word("activation", {"none|relu": ("none", "relu"), "none": ("none",)}))
    require(c, "out_dtype", "i8 (then dequantised to f32 for comparison)")
    requantise_and_dequant(c, p, "scaled_matmul", {**operands, **b.operands, "bias": bias},
                      {**b.attributes, "bias_stage": stage, "activation": activation})  # fmt: skip
    return Variant(p, cut, work)


def coopmat(c: Case, d: Draw) -> Variant:
    """Products of the same weights with f16 activations or with quantised ones."""
    read_common(c)
    m, n, k = read_mnk(c)
    form = c.pick(*c.word("a_dtype", {"f16 / dynamic i8": ("f16", "i8")}))
    b = draw_weight(c, d, n, k, np.float16 if form == "f16" else F)
    x = draw_activations(c, d, (m, k), form if form == "f16" else "f32")
    scale = np.full((m, 1), read_scales(c, "a")["a"], F)
    require(c, "bias", None)
    activation = c.word("activation", ACTIVATIONS)
    p = Program()
    if form == "f16":
        p.step("scaled_matmul", ("y",), {"lhs": x, **b.operands}, **b.attributes, activation=activation,
               out_dtype="f16")  # fmt: skip
    else:
        p.step("quantize", ("q",), {"input": x, "scale": p.value("x_scale", scale)})
        p.step("scaled_matmul", ("y",), {"lhs": "q", "lhs_scale": "x_scale", **b.operands}, **b.attributes,
               activation=activation, out_dtype="f32")  # fmt: skip
    return Variant(p, {}, m * n * k)


def choose_qparams(c: Case, d: Draw) -> Variant:
    read_common(c)
    require(c, "a_dtype", "f32")
    require(c, "a_granularity", "per_token")
    require(c, "bias", None)
    require(c, "activation", "none")
    require(c, "out_dtype", "f32 scale, i8 zp")
    c.word("rounding", {"half_even": "half_even"})
    require_saturation(c)
    if c.take("notes") is None:
        raise UnknownField(f"{c.id}: nothing says how the parameters are chosen")
    m, k = c.take("M"), c.take("K")
    require(c, "N", None)
    p = Program()
    p.step("dynamic_quantize", ("q", "scale", "zero_point"), {"input": d.uniform((m, k), -1, 1)}, granularity="token",
           symmetric=False, recipe="fbgemm")  # fmt: skip
    return Variant(p, {}, m * k)


def choose_and_quantize(c: Case, d: Draw) -> Variant:
    read_common(c)
    m, k = c.take("M"), c.take("K")
    require(c, "a_dtype", "f32")
    require(c, "a_granularity", "per_token")
    require(c, "bias", None)
    require(c, "activation", "none")
    require(c, "out_dtype", "i8")
    s = Stream()
    s((16, 256), 0, 2)
    s((64, 256), 0, 2)
    x = (s((m, k), -1000, 1000) / 512).astype(F)
    symmetric = "_sym_" in c.id
    p = Program()
    p.step("dynamic_quantize", ("q", "scale") if symmetric else ("q", "scale", "zero_point"), {"input": x},
           granularity="token", symmetric=symmetric, recipe="amax" if symmetric else "torchao",
           rounding=c.word("rounding", ROUNDINGS))  # fmt: skip
    return Variant(p, {}, m * k)


def _derived_product(c: Case, d: Draw) -> Variant:
    """Cases whose published results have their own recipes: all scales are powers of two, or their sums are exact."""
    read_common(c)
    m, n, k = read_mnk(c)
    s = Stream()
    out = c.word("out_dtype", OUT_DTYPES)
    rounding = c.word("rounding", ROUNDINGS)
    activation = c.word("activation", ACTIVATIONS)
    require(c, "a_dtype", "i8")
    p = Program()
    if c.id.startswith("qmlir_q8ta_linear"):
        require(c, "w_dtype", "i8")
        require(c, "a_granularity", "per_tensor")
        require(c, "w_granularity", "per_channel")
        require(c, "bias", "float[N]")
        a, w = s((m, k), -128, 128).astype(np.int8), s((n, k), -127, 128).astype(np.int8)
        bias = (s((n,), -64, 64) / 64).astype(F)
        scale = ((1 + np.arange(n) / n) * 2**-7).astype(F)[:, None]
        p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": w, "lhs_scale": F(2**-7), "rhs_scale": scale, "bias": bias,
                                         "lhs_zero_point": np.int32(c.take("a_zero_point")), "out_scale": F(1 / 16),
                                         "out_zero_point": np.int32(-1)},
               rhs_transposed=True, bias_stage="scaled", activation=activation, rounding=rounding,
               out_dtype=out)  # fmt: skip
    elif c.id.startswith("qmlir_w4a8"):
        group = c.take("group_size")
        require(c, "w_dtype", "u4")
        require(c, "a_granularity", "per_token")
        require(c, "w_granularity", "per_group")
        require(c, "bias", None)
        a, q = s((m, k), -128, 128).astype(np.int8), s((n, k), 0, 16).astype(np.uint8)
        i, g, j = np.arange(m)[:, None], np.arange(k // group)[None, :], np.arange(n)[:, None]
        zero = ((3 * g + 5 * j) % 16).astype(np.int32)
        form = c.id.removeprefix("qmlir_w4a8_g32_")
        mode, zeros = {"sym": ("offset_int", None), "int_zp": ("int", zero), "int_zp_int8_out": ("int", zero),
                       "float_zp": ("offset_float", (zero / 8).astype(F))}[form]  # fmt: skip
        out_scale = F(1) if out == "i8" else None
        p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": q, "lhs_scale": (2.0 ** -(5 + i % 3)).astype(F),
                                         "lhs_zero_point": ((7 * i) % 21 - 10).astype(np.int32),
                                         "rhs_scale": (2.0 ** -(4 + (g + j) % 4)).astype(F), "rhs_zero_point": zeros,
                                         "out_scale": out_scale},
               rhs_dtype="u4", rhs_transposed=True, rhs_zero_mode=mode, activation=activation, out_dtype=out,
               rounding=rounding if out == "i8" else None)  # fmt: skip
    else:
        require(c, "w_dtype", "i8")
        require(c, "a_granularity", "per_token")
        require(c, "w_granularity", "per_channel")
        require(c, "bias", None)  # the bias follows from the case's name
        a, w = s((m, k), -128, 128).astype(np.int8), s((n, k), -127, 128).astype(np.int8)
        b = (s((n,), -64, 64)).astype(F)
        stage = {"once": "scaled", "twice": "out"}.get(c.id.rsplit("_", 1)[-1])
        i, j = np.arange(m)[:, None], np.arange(n)[:, None]
        bias = None if stage is None else b.astype(DTYPES[out].numpy) if stage == "out" else b
        p.step("scaled_matmul", ("y",), {"lhs": a, "rhs": w, "lhs_scale": (2.0 ** -(6 + i % 3)).astype(F),
                                         "rhs_scale": (2.0 ** -(7 + j % 3)).astype(F), "bias": bias},
               rhs_transposed=True, bias_stage=stage, activation=activation, out_dtype=out)  # fmt: skip
    return Variant(p, {}, m * n * k)
