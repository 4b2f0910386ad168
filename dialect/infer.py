"""Result shapes and dtypes of the operations from those of their operands: for builders that start from arrays
or specs (eager calls, front ends). The verifier checks what is declared here against the same rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .dtypes import DTYPES
from .shapes import Shape, block_count, broadcast, conv_extent, show, transposed_extent

Spec = tuple[Shape, str]
Operands = Mapping[str, Spec]
Attributes = Mapping[str, Any]

_FILTER_AXES = {"FHWC": (0, 1, 2, 3), "HWCF": (3, 0, 1, 2), "FCHW": (0, 2, 3, 1)}


def _columns(operands: Operands, attributes: Attributes, axis: int) -> int | None:
    """N of `rhs` whose row axis is `axis`, packed or not."""
    shape = operands["rhs"][0]
    n = shape[axis]
    if attributes.get("packing", "none") == "none" or axis != len(shape) - 1 or n is None:
        return n
    # Packed along N: an odd N shows in the scale or the bias.
    per = DTYPES[attributes["rhs_dtype"]].per_byte
    for name in ("rhs_scale", "bias"):
        if name in operands and operands[name][0]:
            width = operands[name][0][-1]
            if width is not None and width > 1 and -(-width // per) == n:
                return width
    return n * per


def _gated(n: int | None, attributes: Attributes) -> int | None:
    return n // 2 if n is not None and attributes.get("activation") in ("swiglu", "geglu") else n


def scaled_matmul(operands: Operands, attributes: Attributes) -> list[Spec]:
    lhs, rhs = operands["lhs"][0], operands["rhs"][0]
    m = lhs[-1 if attributes.get("lhs_transposed") else -2]
    n = _columns(operands, attributes, len(rhs) - (2 if attributes.get("rhs_transposed") else 1))
    batch = broadcast(lhs[:-2], rhs[:-2]) or ()
    return [((*batch, m, _gated(n, attributes)), attributes.get("out_dtype", "f32"))]


def grouped_matmul(operands: Operands, attributes: Attributes) -> list[Spec]:
    n = _gated(_columns(operands, attributes, 1 if attributes.get("rhs_transposed") else 2), attributes)
    rows = operands["lhs"][0][0]
    out = attributes.get("out_dtype", "f32")
    if "expert_ids" not in operands or "routing_weights" in operands:
        return [((rows, n), out)]
    return [((rows, operands["expert_ids"][0][1], n), out)]


def sparse_matmul(operands: Operands, attributes: Attributes) -> list[Spec]:
    lhs = operands["lhs"][0]
    n = attributes["rhs_shape"][0 if attributes.get("rhs_transposed") else 1]
    return [((*lhs[:-1], _gated(n, attributes)), attributes.get("out_dtype", "f32"))]


def conv2d_q(operands: Operands, attributes: Attributes) -> list[Spec]:
    """Raises ValueError for what has no result shape at all."""
    for name in ("input", "weight"):
        if len(shape := operands[name][0]) != 4:
            raise ValueError(f"{name!r} must have four axes, but has shape {show(shape)}")
    for name in ("strides", "dilations"):
        if min(attributes.get(name, (1, 1))) < 1:
            raise ValueError(f"{name!r} {list(attributes[name])} must be at least 1")
    s = operands["input"][0]
    nchw = attributes.get("input_layout", "NHWC") == "NCHW"
    n, h, w = (s[0], s[2], s[3]) if nchw else s[:3]
    f, kh, kw = (operands["weight"][0][i] for i in _FILTER_AXES[attributes.get("filter_layout", "FHWC")][:3])
    if kh is None or kw is None:
        raise ValueError("the size of a filter must be static")
    top, left, bottom, right = attributes.get("padding", (0, 0, 0, 0))
    strides, dilations = attributes.get("strides", (1, 1)), attributes.get("dilations", (1, 1))
    extra = attributes.get("output_padding", (0, 0))
    spatial = []
    for i, (size, k, before, after) in enumerate(((h, kh, top, bottom), (w, kw, left, right))):
        if attributes.get("transposed"):
            spatial.append(transposed_extent(size, k, strides[i], dilations[i], before, after, extra[i]))
        else:
            spatial.append(conv_extent(size, k, strides[i], dilations[i], before, after))
    if any(size is not None and size < 0 for size in spatial):
        raise ValueError(_no_convolution(operands, attributes, kh, kw))
    f = _gated(f, attributes)
    shape = (n, f, *spatial) if nchw else (n, *spatial, f)
    return [(shape, attributes.get("out_dtype", "f32"))]


def _no_convolution(operands: Operands, attributes: Attributes, kh: int, kw: int) -> str:
    """Why a convolution's result would have a negative size."""
    layouts = attributes.get("input_layout", "NHWC"), attributes.get("filter_layout", "FHWC")
    sides = [f"{name!r} {show(operands[name][0])} ({layout})"
             for name, layout in zip(("input", "weight"), layouts, strict=True)]  # fmt: skip
    padding, dilations = (list(attributes.get(n, d)) for n, d in (("padding", (0,) * 4), ("dilations", (1, 1))))
    if attributes.get("transposed"):
        return f"{' and '.join(sides)}: 'padding' {padding} takes away more than the result has"
    others = ", ".join(repr(name) for name in _FILTER_AXES if name != layouts[1])
    return (
        f"{sides[1]} has filters of {kh}x{kw}, which with dilations {dilations} do not fit {sides[0]} with padding "
        f"{padding}; 'filter_layout' {others} reads the weight's axes in another order"
    )


def _unpacked(operands: Operands, attributes: Attributes, dtype: str | None) -> Shape:
    shape = operands["input"][0]
    if attributes.get("packing", "none") == "none" or dtype is None:
        return shape
    length = attributes.get("length")
    last = shape[-1]
    return (
        *shape[:-1],
        length if length is not None else None if last is None else last * DTYPES[dtype].per_byte,
    )


def dequant(operands: Operands, attributes: Attributes) -> list[Spec]:
    return [(_unpacked(operands, attributes, attributes.get("dtype")), attributes.get("out_dtype", "f32"))]


def unpack(operands: Operands, attributes: Attributes) -> list[Spec]:
    d = DTYPES[attributes["dtype"]]
    signed = d.is_int and d.signed and d.bits > 1
    packed = {"packing": "low_first", **attributes}
    return [(_unpacked(operands, packed, d.name), "i8" if signed else "u8")]


def quantize(operands: Operands, attributes: Attributes) -> list[Spec]:
    out = DTYPES[attributes.get("out_dtype", "i8")]
    if out.kind == "float":
        return [(operands["input"][0], out.name)]
    return [(operands["input"][0], "i8" if out.signed else "u8")]


def dynamic_quantize(operands: Operands, attributes: Attributes) -> list[Spec]:
    shape = operands["input"][0]
    granularity = attributes.get("granularity", "token")
    if granularity == "tensor":
        scale: Shape = ()
    else:
        k = shape[-1]
        groups = 1 if granularity == "token" else None if k is None else k // attributes.get("group_size", 1)
        scale = (*shape[:-1], groups)
    codes = quantize(operands, attributes)
    symmetric = attributes.get("symmetric", True)
    return [*codes, (scale, "f32"), *([] if symmetric else [(scale, "i32")])]


def route(operands: Operands, attributes: Attributes) -> list[Spec]:
    shape = (operands["logits"][0][0], attributes["topk"])
    return [(shape, "i32"), (shape, "f32")]


def moe_align_block_size(operands: Operands, attributes: Attributes) -> list[Spec]:
    tokens, topk = operands["expert_ids"][0]
    slots = None if tokens is None or topk is None else tokens * topk
    width = attributes["block_size"]
    blocks = block_count(slots, attributes["experts"], width)
    return [((None if blocks is None else blocks * width,), "i32"), ((blocks,), "i32"), ((), "i32")]


def moe(operands: Operands, attributes: Attributes) -> list[Spec]:
    w2 = {"rhs": operands["w2"]} | {
        name: operands[mine] for mine, name in (("w2_scale", "rhs_scale"), ("w2_bias", "bias")) if mine in operands
    }
    packed = {**attributes, "rhs_dtype": attributes.get("weight_dtype", "i8")}
    n = _columns(w2, packed, 1 if attributes.get("weights_transposed") else 2)
    return [((operands["input"][0][0], n), attributes.get("out_dtype", "f32"))]


RESULTS: dict[str, Callable[[Operands, Attributes], list[Spec]]] = {
    "scaled_matmul": scaled_matmul,
    "grouped_matmul": grouped_matmul,
    "sparse_matmul": sparse_matmul,
    "conv2d_q": conv2d_q,
    "dequant": dequant,
    "quantize": quantize,
    "dynamic_quantize": dynamic_quantize,
    "unpack": unpack,
    "route": route,
    "moe_align_block_size": moe_align_block_size,
    "moe": moe,
}
