"""com.microsoft's quantised elementwise operators: one loop dequantises, computes in f32 and quantises.

Source: onnxruntime, docs/ContribOperators.md, and the order of operations of its kernels (mlas/lib/qladd.cpp,
qlmul.cpp; contrib_ops/cpu/quantization/qlinear_lookup_table.cc).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....core.mlir import arith
from ....dialect.dtypes import DTYPES
from ....ir.scalars import const, sigmoid
from ...raising import PatternDeclined, Tensor, raises
from ...tensors import elementwise, integer, quantised
from ..node import Node
from .common import BYTES, DequantizedValue, ratio, same, scale_of, times, zero_of
from .linear import quantize

if TYPE_CHECKING:
    from ....core.mlir import ir


def per_tensor(op: Node, codes: int, scale: int, zero: int) -> DequantizedValue:
    """The quantised value at three inputs, with one scale and one zero point per tensor."""
    s, z = scale_of(op.operand(scale)), zero_of(op.optional(zero))
    if s.shape or (z is not None and z.shape):
        raise PatternDeclined("scales and zero points per axis; one value per tensor is raised")
    x = op.operand(codes)
    if x.dtype not in BYTES:
        raise PatternDeclined(f"codes of type {x.dtype}")
    return DequantizedValue(x, s, z, 0, 0, ())


def output(op: Node, scale: int, zero: int, dtype: str) -> tuple[Tensor, Tensor | None, str]:
    """Scale, zero point and type of the result."""
    s, z = scale_of(op.operand(scale)), op.optional(zero)
    if s.shape:
        raise PatternDeclined("a result with more than one scale")
    return s, zero_of(z), dtype if z is None else z.dtype


def centred(x: ir.Value, dtype: str, zero: ir.Value | None) -> ir.Value:
    """`code - zero` of a scalar, i32."""
    value = integer(x, dtype)
    return value if zero is None else arith.subi(value, zero)


def mapped(op: Node, f: Callable[[ir.Value], ir.Value]) -> Tensor:
    """(X, X_scale, X_zero, Y_scale, Y_zero): `f` of each dequantised value, quantised again."""
    x = per_tensor(op, 0, 1, 2)
    scale, zero, dtype = output(op, 3, 4, x.codes.dtype)
    d = DTYPES[dtype]
    has = [x.zero is not None, zero is not None]
    extra = [t for t in (x.zero, zero) if t is not None]

    def body(code: ir.Value, sx: ir.Value, sy: ir.Value, *zs: ir.Value) -> ir.Value:
        zx = zs[0] if has[0] else None
        zy = arith.sitofp(sy.type, zs[-1]) if has[1] else None
        number = arith.mulf(arith.sitofp(sx.type, centred(code, x.codes.dtype, zx)), sx)
        return quantised(arith.divf(f(number), sy), zy, d)

    return op.sized_as(0, elementwise(body, [x.codes, x.scale, scale, *extra], dtype))


@raises("onnx.com.microsoft.QLinearLeakyRelu")
def leaky_relu(op: Node) -> Tensor:
    """`x` where positive, else `alpha * x`, in one loop over the codes."""
    alpha = float(op.attributes.get("alpha", 0.01))

    def f(x: ir.Value) -> ir.Value:
        negative = arith.cmpf(arith.CmpFPredicate.OLT, x, const(0.0))
        return arith.select(negative, arith.mulf(x, const(alpha)), x)

    return mapped(op, f)


@raises("onnx.com.microsoft.QLinearSigmoid")
def qlinear_sigmoid(op: Node) -> Tensor:
    """`1 / (1 + exp(-x))` in one loop over the codes."""
    return mapped(op, sigmoid)


def _binary(
    op: Node, body: Callable[..., ir.Value], factors: list[Tensor], a: DequantizedValue, b: DequantizedValue
) -> Tensor:
    """`body(a - zero_a, b - zero_b, *factors)` plus the result's zero point."""
    _, zero, dtype = output(op, 6, 7, a.codes.dtype)
    d = DTYPES[dtype]
    zeros = [a.zero, b.zero, zero]
    present = [z for z in zeros if z is not None]

    def whole(x: ir.Value, y: ir.Value, *rest: ir.Value) -> ir.Value:
        given = list(rest[len(factors) :])
        za, zb, zc = (given.pop(0) if z is not None else None for z in zeros)
        value = body(centred(x, a.codes.dtype, za), centred(y, b.codes.dtype, zb), *rest[: len(factors)])
        return quantised(value, None if zc is None else arith.sitofp(value.type, zc), d)

    made = elementwise(whole, [a.codes, b.codes, *factors, *present], dtype)
    return op.sized_as(0, made) if op.named(0) == op.named(3) else made


@raises("onnx.com.microsoft.QLinearAdd")
def add(op: Node) -> Tensor:
    """`a * (a_scale / c_scale) + b * (b_scale / c_scale)`."""
    a, b = per_tensor(op, 0, 1, 2), per_tensor(op, 3, 4, 5)
    scale, _, _ = output(op, 6, 7, a.codes.dtype)

    def body(x: ir.Value, y: ir.Value, ra: ir.Value, rb: ir.Value) -> ir.Value:
        return arith.addf(arith.mulf(arith.sitofp(ra.type, x), ra), arith.mulf(arith.sitofp(rb.type, y), rb))

    return _binary(op, body, [ratio([a.scale], scale), ratio([b.scale], scale)], a, b)


@raises("onnx.com.microsoft.QLinearMul")
def mul(op: Node) -> Tensor:
    """`(a * b) * (a_scale * b_scale / c_scale)`, the first product exact in i32."""
    a, b = per_tensor(op, 0, 1, 2), per_tensor(op, 3, 4, 5)
    scale, _, _ = output(op, 6, 7, a.codes.dtype)

    def body(x: ir.Value, y: ir.Value, r: ir.Value) -> ir.Value:
        return arith.mulf(arith.sitofp(r.type, arith.muli(x, y)), r)

    return _binary(op, body, [ratio([a.scale, b.scale], scale)], a, b)


@raises("onnx.com.microsoft.QLinearConcat")
def concat(op: Node) -> Tensor:
    """(Y_scale, Y_zero, X, X_scale, X_zero, ...): each input is requantised unless it has the result's scale and
    zero point."""
    import onnx

    parts = []
    scale, zero, dtype = output(op, 0, 1, "u8")
    for i in range(2, len(op.proto.input), 3):
        x = per_tensor(op, i, i + 1, i + 2)
        parts.append(requantize(op, x, scale, zero, dtype))
    axis = onnx.helper.make_attribute("axis", int(op.attributes.get("axis", 0)))
    made: Tensor = op.graph.torch_op("Concat", parts, [axis], op)
    return made


@raises("onnx.com.microsoft.QLinearWhere")
def where(op: Node) -> Tensor:
    """(condition, X, x_scale, x_zero, Y, y_scale, y_zero, z_scale, z_zero)."""
    x, y = per_tensor(op, 1, 2, 3), per_tensor(op, 4, 5, 6)
    scale, zero, dtype = output(op, 7, 8, x.codes.dtype)
    parts = [requantize(op, q, scale, zero, dtype) for q in (x, y)]
    return elementwise(arith.select, [op.operand(0), *parts], dtype)


def requantize(op: Node, x: DequantizedValue, scale: Tensor, zero: Tensor | None, dtype: str) -> Tensor:
    """Codes of one quantisation as codes of another."""
    if x.codes.dtype == dtype and same(x.scale, scale) and same(x.zero, zero):
        return x.codes
    return quantize(dequantize(op, x), scale, zero, dtype)


def dequantize(op: Node, x: DequantizedValue) -> Tensor:
    """The dequantised values as f32."""
    made: Tensor = op.build("dequantize", input=x.codes, scale=x.scale, zero_point=x.zero, dtype=x.codes.dtype)
    return made


__all__ = ["add", "concat", "dequantize", "leaky_relu", "mul", "output", "per_tensor", "qlinear_sigmoid", "requantize",
           "times", "where"]  # fmt: skip
