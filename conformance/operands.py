"""Operands that several families of cases share: weights, activations, biases, and how activations are quantised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import qmlir
from qmlir.dialect.dtypes import DTYPES

from .case import PACKINGS, ROUNDINGS, Case, Draw, F, UnknownField, read_scales, require
from .program import Program

R = qmlir.reference


@dataclass
class Rhs:
    """A weight `[N, K]` as the operands and attributes of a product."""

    operands: dict[str, Any]
    attributes: dict[str, Any]


_NIBBLE8 = ("u4 (nibble-8)", "i4 (nibble-8)")


_WEIGHT = {
    "i8": "i8", "i8 [-127,127]": "i8", "i4 [-8,7]": "i4", "i4": "i4", "int4": "i4", "int2": "i2", "int1": "i1",
    "u4": "u4", "u2": "u2", "i2": "i2", "u4 (nibble-8)": "u4", "i4 (nibble-8)": "u4", "u4 (GPTQ)": "u4",
    "nf4 (16-entry LUT)": "nf4", "f16": "f16", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2",
}  # fmt: skip


def draw_weight(c: Case, d: Draw, n: int, k: int, kind: Any = F, scaled: bool | None = None) -> Rhs:
    """Codes, scales and zero points of a dense weight. `kind` is the scale's type; `scaled`: whether it has scales."""
    stated = c.take("w_dtype")
    if stated not in _WEIGHT:
        raise UnknownField(f"{c.id}: w_dtype = {stated!r} has no meaning here; known: {', '.join(_WEIGHT)}")
    dtype = _WEIGHT[stated]
    spread = {"per_channel": k, "per_group": None, "per_tensor": k, None: k}
    granularity = require(c, "w_granularity", *spread)
    group = c.take("group_size")
    block = group if granularity == "per_group" or (group not in (None, -1)) else k
    if block is None or block < 1 or k % block:
        raise UnknownField(f"{c.id}: group_size = {group!r} does not fit w_granularity = {granularity!r} and K = {k}")
    zero_form = c.word("w_zero_point", {
        None: None, 0: None, "original": "int", "rescale": "rescale", "quantized": "packed_int",
        "quantized, stored value 7 (+1 in GPTQ)": "packed_int",
        "float additive z[g,n]: w=(q-8)*s+z": "offset_float",
        "i32[g,n] in [-128,128): w=((nib-8)-z)*s": "offset_int",
    })  # fmt: skip
    # A stated granularity or group size implies scales. A caller that knows better passes `scaled`.
    has_scale = granularity is not None or group not in (None, -1) if scaled is None else scaled
    codes = _weight_codes(c, d, (n, k), dtype, stated)
    attributes: dict[str, Any] = {"rhs_transposed": True, "rhs_dtype": dtype}
    operands: dict[str, Any] = {"rhs": codes}
    packing = c.word("packing", PACKINGS)
    if DTYPES[dtype].bits < 8:
        attributes["rhs_packing"] = packing
        operands["rhs"] = R.pack(codes, dtype, packing)
    shape = () if granularity == "per_tensor" else (n, k // block)
    if has_scale:
        operands["rhs_scale"] = _weight_scale(c, d, shape, kind)
    if stated in _NIBBLE8 and zero_form is None:
        attributes["rhs_zero_mode"] = "offset_int"
    if zero_form is not None:
        attributes["rhs_zero_mode"] = zero_form
        operands["rhs_zero_point"] = _weight_zero(c, d, shape, dtype, zero_form, packing, operands.get("rhs_scale"))
    return Rhs(operands, attributes)


def _weight_codes(c: Case, d: Draw, shape: tuple[int, int], dtype: str, stated: str) -> Any:
    data = c.take("data")
    ranges = {
        "torch.manual_seed(0); A=rand-.5; W randint(0,8) (uint); zeros const 8; scale rand": (0, 8),
        "act = .5+.125*(i%8); nibbles 9..14 (exact-friendly)": (1, 7),
        "A randint(0,4), W randint(0,2 or 4)": (0, 2 if dtype == "i2" else 4),
        "A,W randint(0,7)": (0, 7),
        "randint(-20,20); scales rand+1e-6": (-20, 20),
        "randint(-127,127) (hi exclusive); scales randn(1): may be negative": (-127, 127),
    }
    plain = (None, "mt19937 seed 42+; act U[-1,1), nibbles 0..15", "manual_seed(0)", "randn, pertoken_quant")
    if data in ranges:
        return d.ints(shape, *ranges[data], np.uint8 if dtype[0] == "u" else np.int8)
    if data not in plain:
        raise UnknownField(f"{c.id}: data = {data!r} has no meaning here")
    if stated == "i8 [-127,127]":
        return d.ints(shape, -127, 128)
    return d.codes(shape, dtype)


_RANGE = re.compile(r"U\[([-\d.]+),([-\d.]+)\)")


def draw_uniform(c: Case, d: Draw, text: Any, shape: tuple[int, ...]) -> Any:
    """An array of random values of `U[lo,hi)`, or filled with a number."""
    if isinstance(text, (int, float)):
        return np.full(shape, text, F)
    found = _RANGE.fullmatch(text)
    if not found:
        raise UnknownField(f"{c.id}: a scale {text!r} has no meaning here")
    lo, hi = map(float, found.groups())
    # U[0, 1) may give a scale of 0, which is legal.
    return d.uniform(shape, lo, hi)


def _weight_scale(c: Case, d: Draw, shape: tuple[int, ...], kind: Any) -> Any:
    stated = (c.take("scales") or {}).get("w")
    if stated == "f16 [4096,1]":
        return d.uniform(shape, 0.005, 0.015, np.float16)
    scale = draw_uniform(c, d, stated, shape) if stated is not None else d.uniform(shape, 0.005, 0.015)
    return scale.astype(kind)


def _weight_zero(
    c: Case, d: Draw, shape: tuple[int, ...], dtype: str, form: str, packing: str, scale: Any
) -> Any:  # fmt: skip
    stated = c.take("w_zero_point")
    if form == "offset_float":
        return d.uniform(shape, -1.0, 1.0)
    if form == "offset_int":
        return d.ints(shape, -128, 128, np.int32)
    constant = 8 if DTYPES[dtype].bits == 4 else 2
    if stated.startswith("quantized, stored value 7"):
        # GPTQ stores zero points minus 1; repacking at load time adds the 1.
        constant = 7 + 1
    if form == "int":
        return np.full(shape, constant, np.int32)
    if form == "rescale":
        return (np.float32(constant) * scale.astype(F)).astype(scale.dtype)
    return R.pack(np.full(shape, constant, np.uint8), dtype, packing)


def draw_activations(c: Case, d: Draw, shape: tuple[int, ...], dtype: str) -> Any:
    """Float activations with the data that the case states."""
    data, kind = c.take("data"), DTYPES[dtype].numpy
    if data == "act = .5+.125*(i%8); nibbles 9..14 (exact-friendly)":
        return (0.5 + 0.125 * (np.arange(np.prod(shape)).reshape(shape) % 8)).astype(kind)
    if data == "torch.manual_seed(0); A=rand-.5; W randint(0,8) (uint); zeros const 8; scale rand":
        return d.uniform(shape, -0.5, 0.5, kind)
    if data not in (None, "mt19937 seed 42+; act U[-1,1), nibbles 0..15"):
        raise UnknownField(f"{c.id}: data = {data!r} has no meaning for activations")
    return d.uniform(shape, -1.0, 1.0, kind)


def draw_bias(c: Case, d: Draw, n: int, out: str) -> tuple[Any, str | None]:
    """The bias and its stage."""
    form = c.word("bias", {
        None: None, "float[N]": ("scaled", F), "f16[N]": ("scaled", np.float16),
        "f16[N], added after the cast to out dtype": ("out", np.float16), "out dtype [1,N], rand*10": ("out", None),
    })  # fmt: skip
    if form is None:
        return None, None
    stage, kind = form
    if c.fields["bias"] == "out dtype [1,N], rand*10":
        return d.uniform((1, n), 0, 10, DTYPES[out].numpy), stage
    return d.uniform((n,), -1, 1, kind), stage


_QUANTISER_ROUNDING = {
    **ROUNDINGS,
    # choose_qparams rounds the zero point half to even, as the recipe does here; the codes are rounded by round().
    "half_even (choose_qparams nearbyint); round() for q": "half_away",
}


def quantised_activations(
    c: Case, d: Draw, p: Program, shape: tuple[int, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`lhs` with its scale and zero point. Float activations are quantised by a step that is added to the program."""
    form = c.take("a_dtype")
    granularity = c.take("a_granularity")
    zero = c.take("a_zero_point")
    scales = read_scales(c, "a", "w", "out", "out_zp", "D0", "D1", "epilogue")
    data = c.take("data")
    rows = (*shape[:-1], 1)
    if form == "i8" and granularity in ("per_token", None):
        lhs = d.ints(shape, 0, 7) if data == "A,W randint(0,7)" else d.codes(shape, "i8")
        if granularity is None:
            return {"lhs": lhs}, {}
        scale = d.uniform(rows, 0.005, 0.015) if "a" not in scales else draw_uniform(c, d, scales["a"], rows)
        if zero is None:
            return {"lhs": lhs, "lhs_scale": scale}, {}
        if zero not in ("per token in [-10,10)", "per token [-10,10)"):
            raise UnknownField(f"{c.id}: a_zero_point = {zero!r} has no meaning here")
        return {"lhs": lhs, "lhs_scale": scale, "lhs_zero_point": d.ints(rows, -10, 10, np.int32)}, {}
    if granularity == "per_token dynamic":
        source = {"f32 -> dynamic i8": "f32", "f16 -> dynamic i8": "f16", "i8": "f16"}.get(form)
        if source is None or zero not in ("asymmetric per token", None):
            raise UnknownField(f"{c.id}: a_dtype = {form!r} with a_zero_point = {zero!r} has no meaning here")
        x = draw_activations(c, d, shape, source)
        symmetric = zero is None
        names = ("q", "q_scale") if symmetric else ("q", "q_scale", "q_zero_point")
        p.step("dynamic_quantize", names, {"input": x}, symmetric=symmetric, granularity="token",
               recipe="amax" if symmetric else "fbgemm", rounding=c.word("rounding", _QUANTISER_ROUNDING))  # fmt: skip
        return dict(zip(("lhs", "lhs_scale", "lhs_zero_point"), names, strict=False)), {}
    if form == "f32 -> static i8" and granularity == "per_tensor" and "a" in scales:
        x, scale, code = draw_activations(c, d, shape, "f32"), np.asarray(scales["a"], F), np.asarray(zero, np.int32)
        p.step("quantize", ("q",), {"input": x, "scale": p.value("x_scale", scale),
                                    "zero_point": p.value("x_zero_point", code)},
               rounding=c.word("rounding", ROUNDINGS))  # fmt: skip
        return {"lhs": "q", "lhs_scale": "x_scale", "lhs_zero_point": "x_zero_point"}, {}
    raise UnknownField(f"{c.id}: a_dtype = {form!r} with a_granularity = {granularity!r} has no meaning here")


def requantise_and_dequant(c: Case, p: Program, op: str, operands: dict[str, Any], attributes: dict[str, Any]) -> None:
    scales = read_scales(c, "a", "w", "out", "out_zp")
    p.value("y_scale", np.asarray(scales["out"], F))
    p.value("y_zero_point", np.asarray(scales["out_zp"], np.int32))
    p.step(op, ("y",), {**operands, "out_scale": "y_scale", "out_zero_point": "y_zero_point"}, **attributes,
           out_dtype="i8", rounding=c.word("rounding", ROUNDINGS), clamp=tuple(c.take("saturation")))  # fmt: skip
    p.step("dequant", ("real",), {"input": "y", "scale": "y_scale", "zero_point": "y_zero_point"}, dtype="i8",
           zero_mode="int")  # fmt: skip
