"""QuantizeLinear and DequantizeLinear, exactly as ONNX defines them. A QuantizeLinear absorbs a product, clamps and
moves of elements in front of it if the result stays exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith
from ....dialect.dtypes import DTYPES
from ....ir import build
from ....ir.scalars import i32
from ...raising import PatternDeclined, Tensor, build as build_op, raises
from ...tensors import (
    at_axis,
    elementwise,
    integer,
    number,
    quantised,
    real,
    repeat,
    small_float_code,
)
from ..node import Node
from ..types import ELEMENTS
from ..upgrade import upgraded
from .common import (
    BYTES,
    DequantizedValue,
    absorb,
    axis_of,
    check_blocks,
    of_dequantize,
    quantised_input,
    same,
    scale_of,
    times,
    zero_of,
)
from .pooled import pooled_codes
from .products import Requantise, requantised
from .resized import nearest, repeats

if TYPE_CHECKING:
    from ....core.mlir import ir

# Operators that only move elements, and can move codes as well as dequantised values.
MOVES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Gather", "Expand", "Tile",
         "DepthToSpace", "SpaceToDepth")  # fmt: skip
_DEQUANT = ("i8", "u8", "i4", "u4", "i2", "u2", "e2m1", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")


@raises("onnx.DequantizeLinear", "onnx.com.microsoft.DequantizeLinear")
def dequantize_linear(op: Node) -> Tensor:
    """`(x - zero) * scale`, rounded once to the scale's type."""
    q = of_dequantize(op)
    out = _output_float(op, q)
    codes, scale, zero = q.codes, q.aligned(q.scale), q.aligned(q.zero)
    assert scale is not None
    size = codes.shape[q.axis] if codes.shape else None
    if q.block and (size is None or size % q.block):
        scale = repeat(scale, q.axis, q.block, size)
        zero = None if zero is None else repeat(zero, q.axis, q.block, size)
    if codes.dtype in _DEQUANT:
        made: Tensor = op.build(
            "dequantize", input=codes, scale=scale, zero_point=zero, dtype=codes.dtype, out_dtype=out
        )
        return made
    if codes.dtype not in ("i16", "u16", "i32", "e8m0"):
        raise PatternDeclined(f"codes of type {codes.dtype}")
    if q.block and scale.shape[q.axis] != size:
        scale = repeat(scale, q.axis, q.block, size)
        zero = None if zero is None else repeat(zero, q.axis, q.block, size)

    def body(x: ir.Value, s: ir.Value, *z: ir.Value) -> ir.Value:
        value = number(x, codes.dtype) if not z else arith.sitofp(s.type, arith.subi(integer(x, codes.dtype), z[0]))
        y = arith.mulf(value, s)
        kind = build.element(out)
        return y if out == "f32" else arith.truncf(kind, y)

    return elementwise(body, [codes, scale, *([] if zero is None else [zero])], out)


def _output_float(op: Node, q: DequantizedValue) -> str:
    """The result's type: `output_dtype`, else the scale's."""
    stated = int(op.attributes.get("output_dtype", 0))
    out = ELEMENTS[stated].dtype if stated in ELEMENTS else q.dtype
    if out not in ("f32", "f16", "bf16"):
        raise PatternDeclined(f"a result of type {out}")
    return out


def output_code(op: Node) -> str:
    """The type of a QuantizeLinear's codes: the zero point's, else `output_dtype`, else u8."""
    zero = op.optional(2)
    if zero is not None:
        return str(zero.dtype)
    stated = int(op.attributes.get("output_dtype", 0))
    return ELEMENTS[stated].dtype if stated in ELEMENTS else "u8"


@raises("onnx.QuantizeLinear", "onnx.com.microsoft.QuantizeLinear")
def quantize_linear(op: Node) -> Tensor:
    """`saturate(round_half_even(x / scale) + zero)`."""
    x, raw, d = op.operand(0), op.operand(1), DTYPES[output_code(op)]
    axis, block = axis_of(op, len(x.shape)), int(op.attributes.get("block_size", 0))
    scale, zero = scale_of(raw), zero_of(op.optional(2))
    if not block:
        found = _onto_codes(op, d.name, scale, zero) or _into_product(op, d.name, scale, zero)
        if found is not None:
            return found
    if x.dtype not in ("f32", "f16", "bf16", "i32"):
        raise PatternDeclined(f"an input of type {x.dtype}")
    if block:
        check_blocks(x.shape, raw.shape, axis, block)
        scale = repeat(real(raw), axis, block, x.shape[axis])
        if zero is not None:
            z = op.operand(2)
            whole = Tensor.constant(z.array.astype(np.int32)) if z.array is not None else elementwise(
                lambda v: integer(v, z.dtype), [z], "i32")  # fmt: skip
            zero = repeat(whole, axis, block, x.shape[axis])
    elif scale.shape:
        scale = at_axis(scale, axis, len(x.shape))
        zero = at_axis(zero, axis, len(x.shape)) if zero is not None and zero.shape else zero
    return quantize(real(x), scale, zero, d.name, saturate=bool(op.attributes.get("saturate", 1)))


def quantize(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: str, *, saturate: bool = True) -> Tensor:
    """Quantise f32 values with a scale that broadcasts. ONNX divides by the scale, whereas `qmlir.quantize` multiplies
    by its reciprocal. Both agree for powers of two; for other scales, the values are divided first and quantised with a
    scale of 1."""
    d = DTYPES[dtype]
    if d.kind != "int":
        return _small_float(x, scale, dtype, saturate)
    if d.bits <= 8:
        exact = scale.array is not None and bool((np.frexp(np.abs(scale.array))[0] == 0.5).all())
        if not exact:
            x, scale = elementwise(arith.divf, [x, scale], "f32"), Tensor.constant(np.float32(1.0))
        made: Tensor = build_op("quantize", input=x, scale=scale, zero_point=zero, out_dtype=dtype)
        return made

    def body(v: ir.Value, s: ir.Value, *z: ir.Value) -> ir.Value:
        return quantised(arith.divf(v, s), arith.sitofp(s.type, z[0]) if z else None, d)

    return elementwise(body, [x, scale, *([] if zero is None else [zero])], dtype)


def _small_float(x: Tensor, scale: Tensor, dtype: str, saturate: bool) -> Tensor:
    """Quantise f32 values to the codes of a small float."""
    kind = build.element(dtype)
    byte = build.element("i8")

    def body(v: ir.Value, s: ir.Value) -> ir.Value:
        code = arith.trunci(byte, small_float_code(arith.divf(v, s), dtype, saturate))
        return code if kind == byte else arith.bitcast(kind, code)

    return elementwise(body, [x, scale], dtype)


# ------------------------------------------------------------------------- absorbing the producers of a quantisation


def _onto_codes(op: Node, dtype: str, scale: Tensor, zero: Tensor | None) -> Tensor | None:
    """Move operators that only move elements from between a dequantisation and this quantisation to after it: codes are
    a quarter of the bytes, and the dequantisation and quantisation, then adjacent, become a table. If both have the
    same parameters, the codes stay unchanged, which is exact, because `(q - z) * s / s` rounds to `q - z`. None if
    nothing can be moved."""
    if scale.shape or (zero is not None and zero.shape) or dtype not in _DEQUANT:
        return None
    taken: list[Node] = []

    def codes_at(node: Node, at: int) -> Tensor | None:
        """The codes for input `at` of a node; None if it is not made from dequantised values by moves alone."""
        q = quantised_input(node, at)
        if q is not None:
            taken.extend(q.nodes)
            if q.per_tensor and q.codes.dtype == dtype and same(q.scale, scale) and same(q.zero, zero):
                return q.codes
            return quantize(real(node.operand(at)), scale, zero, dtype)
        before = node.producer(at)
        if before is None or before.uses() != 1 or len(before.proto.output) > 1:
            return None
        moves = _moves(before, dtype, scale)
        if not moves:
            return None
        made = [m for m in (codes_at(before, i) for i in moves) if m is not None]
        if len(made) < len(moves):
            return None
        taken.append(before)
        rest = [before.optional(i) for i in range(len(moves), len(before.proto.input))]
        if before.op_type == "MaxPool":
            return pooled_codes(before, made[0])
        if before.op_type == "Resize":
            return nearest(before, made[0])
        proto, operands = upgraded(before.proto, [*made, *rest], before.opset, before.where)
        moved: Tensor = op.graph.torch_op(proto.op_type, operands, proto.attribute, before)
        return moved

    direct = quantised_input(op, 0)
    if direct is not None and not (
        direct.per_tensor and direct.codes.dtype == dtype and same(direct.scale, scale) and same(direct.zero, zero)
    ):
        return None
    found = codes_at(op, 0)
    if found is not None:
        absorb(op, *taken)
    return found


def _moves(node: Node, dtype: str, scale: Tensor) -> range:
    """The indices of the inputs whose elements a node only moves; empty for other nodes."""
    if node.op_type in MOVES:
        return range(1)
    if node.op_type == "Concat":
        return range(len(node.proto.input))
    if node.op_type == "MaxPool":  # with a positive scale, the largest value has the largest code
        return range(1 if dtype in BYTES and _positive(scale) else 0)
    return range(1 if node.op_type == "Resize" and repeats(node, node.operand(0)) is not None else 0)


def _positive(scale: Tensor) -> bool:
    return scale.array is not None and bool((scale.array > 0).all())


def _into_product(op: Node, dtype: str, scale: Tensor, zero: Tensor | None) -> Tensor | None:
    """Requantise in the epilogue of the product before a QuantizeLinear. Clamps between them become a clamp of the
    codes, which is equivalent, because quantising is monotone. None if there is no product or it has other uses."""
    if dtype not in ("i8", "u8") or scale.shape or (zero is not None and zero.shape):
        return None
    d = DTYPES[dtype]
    lo, hi = float("-inf"), float("inf")
    taken: list[Node] = []
    node = op.producer(0)
    while node is not None and node.uses() == 1 and (bounds := _clamp_bounds(node)) is not None:
        # The later clamp (lo, hi) limits the bounds of the earlier one; a lower bound above the upper one yields to it.
        lo, hi = min(max(min(bounds), lo), hi), min(max(bounds[1], lo), hi)
        taken.append(node)
        node = node.producer(0)
    if node is None or node.uses() != 1 or node.index not in op.graph.products:
        return None
    clamp = None
    if taken:
        if not _positive(scale) or scale.array is None or (zero is not None and zero.array is None):
            return None
        z = 0 if zero is None or zero.array is None else int(zero.array)
        with np.errstate(over="ignore"):
            codes = [np.rint(np.float32(b) / scale.array.astype(np.float32)) + z for b in (lo, hi)]
        clamp = (int(np.clip(codes[0], d.lo, d.hi)), int(np.clip(codes[1], d.lo, d.hi)))
    product = op.graph.products[node.index]
    try:
        made = requantised(op, product, Requantise(scale, zero, dtype, clamp))
    except PatternDeclined:
        return None
    absorb(op, node, *taken, *product.nodes)
    return made


def _clamp_bounds(node: Node) -> tuple[float, float] | None:
    """The bounds of a node that clamps; None for other nodes and for bounds that are not constant."""
    if node.op_type == "Relu":
        return 0.0, float("inf")
    if node.op_type != "Clip":
        return None
    if node.opset < 11:
        return float(node.attributes.get("min", -3.4e38)), float(node.attributes.get("max", 3.4e38))
    bounds = []
    for i, default in ((1, float("-inf")), (2, float("inf"))):
        t = node.optional(i)
        if t is not None and t.array is None:
            return None
        bounds.append(default if t is None or t.array is None else float(t.array))
    return bounds[0], bounds[1]


__all__ = ["dequantize_linear", "i32", "quantize", "quantize_linear", "times"]
