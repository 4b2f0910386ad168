"""Convolutions: ExecuTorch's with statically quantised activations, AITER's with float activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from qmlir.dialect.dtypes import DTYPES
from qmlir.dialect.shapes import conv_extent, transposed_extent

from .case import (
    ACTIVATIONS,
    ROUNDINGS,
    Case,
    Draw,
    F,
    UnknownField,
    Variant,
    read_common,
    read_scales,
    require,
    require_no_zero,
    require_saturation,
)
from .operands import draw_uniform, requantise_and_dequant
from .program import Program


def read_geometry(c: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sizes of a convolution, and the attributes of conv2d_q."""
    v = dict(c.take("conv"))
    left = set(v) - {"N", "C", "H", "W", "K", "R", "S", "stride", "pad", "dil", "groups", "Ho", "Wo", "transposed",
                     "output_padding"}  # fmt: skip
    if left:
        raise UnknownField(f"{c.id}: conv has {sorted(left)}, which has no meaning here")
    top, side = v["pad"]
    attributes = {"strides": tuple(v["stride"]), "dilations": tuple(v["dil"]), "padding": (top, side, top, side),
                  "groups": v["groups"]}  # fmt: skip
    if v.get("transposed"):
        attributes |= {"transposed": True, "output_padding": tuple(v["output_padding"])}
    _check_extent(c, v)
    pixels = v["H"] * v["W"] if v.get("transposed") else v["Ho"] * v["Wo"]
    v["work"] = v["N"] * pixels * v["K"] * (v["C"] // v["groups"]) * v["R"] * v["S"]
    return v, attributes


def _check_extent(c: Case, v: dict[str, Any]) -> None:
    """Raises UnknownField if the geometry does not give the result height and width that the case states."""
    for size, kernel, out, axis in ((v["H"], v["R"], v["Ho"], 0), (v["W"], v["S"], v["Wo"], 1)):
        stride, pad, dilation = v["stride"][axis], v["pad"][axis], v["dil"][axis]
        if v.get("transposed"):
            given = transposed_extent(size, kernel, stride, dilation, pad, pad, v["output_padding"][axis])
        else:
            given = conv_extent(size, kernel, stride, dilation, pad, pad)
        if given != out:
            raise UnknownField(f"{c.id}: the geometry gives an extent of {given}, but the case says {out}")


def static_conv(c: Case, d: Draw) -> Variant:
    read_common(c)
    v, attributes = read_geometry(c)
    layout = c.word("layout", {
        "x NCHW logical; weight [OC, KH*KW*IC/g] IC innermost": "FHWC",
        "x NCHW logical; weight [OC, KH*KW*IC/g] IC innermost ; dw [KH,KW,OC]": "HWCF",
    })  # fmt: skip
    require(c, "a_dtype", "f32 -> static i8")
    require(c, "a_granularity", "per_tensor")
    require(c, "w_dtype", "i8 [-127,127]")
    require(c, "w_granularity", "per_channel")
    require_no_zero(c, "w_zero_point")
    scales = read_scales(c, "a", "w", "out", "out_zp")
    w = d.ints((v["K"], v["R"], v["S"], v["C"] // v["groups"]), -127, 128)
    w = np.transpose(w, (1, 2, 3, 0)) if layout == "HWCF" else w
    p = Program()
    p.step("quantize", ("q",), {"input": d.uniform((v["N"], v["C"], v["H"], v["W"]), -1, 1),
                                "scale": p.value("x_scale", np.asarray(scales["a"], F)),
                                "zero_point": p.value("x_zero_point", np.asarray(c.take("a_zero_point"), np.int32))},
           rounding=c.word("rounding", ROUNDINGS))  # fmt: skip
    # Upstream's zero biases would hide a missing bias, so all are random here.
    c.word("bias", {"float[OC] (upstream values: zeros in general/pw, random in dw)": None, "float[OC]": None})
    operands = {"input": "q", "weight": w, "input_scale": "x_scale", "input_zero_point": "x_zero_point",
                "weight_scale": draw_uniform(c, d, scales["w"], (v["K"],)),
                "bias": d.uniform((v["K"],), -1, 1)}  # fmt: skip
    attributes |= {"input_layout": "NCHW", "weight_layout": layout, "bias_stage": "scaled",
                   "activation": c.word("activation", ACTIVATIONS)}  # fmt: skip
    if c.word("out_dtype", {"f32": False, "i8 (dequantised for comparison)": True}):
        requantise_and_dequant(c, p, "conv2d_q", operands, attributes)
    else:
        require_saturation(c)
        p.step("conv2d_q", ("y",), operands, **attributes, out_dtype="f32")
    return Variant(p, {}, v["work"])


def float_conv(c: Case, d: Draw) -> Variant:
    read_common(c)
    v, attributes = read_geometry(c)
    dtype = c.pick(*c.word("a_dtype", {"f16|bf16": ("f16", "bf16")}))
    layout = c.pick(*c.word("layout", {"NCHW|NHWC": ("NCHW", "NHWC")}))
    activation = c.pick(*c.word("activation", {"none|relu|relu6|gelu": ("none", "relu", "relu6", "gelu")}))
    has_bias = c.pick(*c.word("bias", {"optional": (True, False)}))
    require(c, "w_dtype", "same")
    require(c, "out_dtype", "same")
    kind = DTYPES[dtype].numpy
    x, w = d.normal((v["N"], v["C"], v["H"], v["W"]), kind), d.normal((v["K"], v["C"] // v["groups"], v["R"], v["S"]))
    w = (w / np.sqrt(w[0].size)).astype(kind)
    if layout == "NHWC":
        x, w = np.transpose(x, (0, 2, 3, 1)), np.transpose(w, (0, 2, 3, 1))
    p = Program()
    p.step("conv2d_q", ("y",), {"input": x, "weight": w, "bias": d.normal((v["K"],), kind) if has_bias else None},
           **attributes, input_layout=layout, weight_layout="FCHW" if layout == "NCHW" else "FHWC",
           activation=activation, out_dtype=dtype)  # fmt: skip
    return Variant(p, {}, v["work"])
