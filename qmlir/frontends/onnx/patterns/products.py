"""Matrix products: QLinearMatMul, MatMulInteger, com.microsoft's, and MatMul and Gemm of dequantised values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith
from ....dialect.dtypes import DTYPES
from ....dialect.shapes import group_along
from ...raising import NotQuantised, PatternDeclined, Tensor, raises
from ...tensors import (
    at_axis,
    drop_axis,
    elementwise,
    in_rows,
    new_axis,
    quantised as requantise_scalar,
    real,
    scalar_of,
)
from ..node import Node, OnnxProduct
from .attention import attention_of
from .common import BYTES, DequantizedValue, absorb, quantised_input, ratio, scale_of, times, zero_of

if TYPE_CHECKING:
    from ....core.mlir import ir

# Types of codes that a product takes; sums of products of 16-bit codes are not exact in i32.
CODES = ("i8", "u8", "i4", "u4", "i2", "u2", "e2m1", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")


@dataclass(frozen=True)
class Requantise:
    """The parameters with which a result is quantised."""

    scale: Tensor
    zero: Tensor | None
    dtype: str
    clamp: tuple[int, int] | None = None


def requantised(op: Node, p: OnnxProduct, to: Requantise) -> Tensor:
    """The product with codes as its result. If only the accumulator is scaled, one multiplier does it,
    `(lhs_scale * rhs_scale) / scale`, as in onnxruntime."""
    known = p.bias is None or p.bias.dtype == "i32"
    out: dict[str, object] = {"out_dtype": to.dtype, "out_zero_point": to.zero, "clamp": to.clamp, "bias": p.bias}
    if known and p.factors is not None:
        out["out_multiplier"] = _vector(ratio(p.factors, to.scale))
    else:
        out |= {**p.scales, "out_scale": to.scale}
    return p.finish(op.build(p.operation, **p.arguments, **out))


def _vector(t: Tensor) -> Tensor:
    """A constant multiplier that has one row, as a vector, the form that lowers best."""
    if t.array is not None and t.array.ndim > 1 and t.array.size == t.array.shape[-1]:
        return Tensor.constant(t.array.reshape(-1))
    return t


# ----------------------------------------------------------------------------------------------- quantised operands


def quantised(codes: Tensor, scale: Tensor | None, zero: Tensor | None, axis: int) -> DequantizedValue:
    """An operand whose codes, scale and zero point are separate inputs; vectors of scales are along `axis`."""
    s = Tensor.constant(np.float32(1.0)) if scale is None else scale_of(scale)
    return DequantizedValue(codes, s, zero_of(zero), axis, 0, ())


def matmul_product(
    lhs: DequantizedValue | Tensor,
    rhs: DequantizedValue | Tensor,
    *,
    lhs_transposed: bool = False,
    rhs_transposed: bool = False,
    bias: Tensor | None = None,
    nodes: tuple[Node, ...] = (),
) -> OnnxProduct:
    """A product of two operands, each plain float or quantised; vectors are treated as in numpy's matmul.

    Raises:
        PatternDeclined: codes that no product takes, or a scale along K.
    """
    rows = _merged_rows(lhs, rhs, lhs_transposed, bias)
    if rows is not None:
        flat, unflatten = rows
        product = matmul_product(flat, rhs, rhs_transposed=rhs_transposed, bias=bias, nodes=nodes)
        return replace(product, finish=unflatten)
    sides = {}
    arguments: dict[str, object] = {"lhs_transposed": lhs_transposed or None, "rhs_transposed": rhs_transposed or None}
    dropped: list[int] = []
    for name, side, transposed in (("lhs", lhs, lhs_transposed), ("rhs", rhs, rhs_transposed)):
        codes = side.codes if isinstance(side, DequantizedValue) else side
        rank = len(codes.shape)
        if isinstance(side, DequantizedValue) and codes.dtype not in CODES:
            raise PatternDeclined(f"{name} has codes of type {codes.dtype}; products take {', '.join(CODES)}")
        if rank == 0:
            raise PatternDeclined(f"{name} is a scalar")
        if rank == 1:
            at = 0 if name == "lhs" else 1
            if isinstance(side, DequantizedValue):
                if side.scale.shape or (side.zero is not None and side.zero.shape):
                    raise PatternDeclined(f"{name} is a vector with more than one scale")
                side = replace(side, codes=new_axis(codes, at))
                codes = side.codes
            else:
                side = codes = new_axis(codes, at)
            dropped.append(-2 if name == "lhs" else -1)
            rank = 2
        along_k = (
            (rank - 1 if name == "lhs" else rank - 2) if not transposed else (rank - 2 if name == "lhs" else rank - 1)
        )
        if isinstance(side, DequantizedValue) and not side.per_tensor and not side.block and side.axis == along_k:
            raise PatternDeclined(f"{name} is quantised per axis {side.axis}, which the product sums over")
        sides[name] = side
        arguments[name] = codes
        if isinstance(side, DequantizedValue):
            arguments[f"{name}_zero_point"] = _align(side.zero, side)
    a, b = sides["lhs"], sides["rhs"]
    arguments["group_size"] = _groups(arguments, a, b, bool(lhs_transposed), bool(rhs_transposed))
    scales = [_align(s.scale, s) if isinstance(s, DequantizedValue) else None for s in (a, b)]
    factors = None
    if isinstance(a, DequantizedValue) and isinstance(b, DequantizedValue) and not a.block and not b.block:
        over_n = scales[1]
        if rhs_transposed and over_n is not None and over_n.shape:
            over_n = at_axis(b.scale, len(b.codes.shape) - 1, len(b.codes.shape))
        over_m = scales[0]
        if lhs_transposed and over_m is not None and over_m.shape:
            over_m = at_axis(a.scale, len(a.codes.shape) - 2, len(a.codes.shape))
        assert over_m is not None
        assert over_n is not None
        factors = (over_m, over_n)

    def finish(t: Tensor) -> Tensor:
        for axis in sorted(dropped):
            t = drop_axis(t, len(t.shape) + axis if axis == -2 or len(dropped) == 1 else len(t.shape) - 1)
        return t

    return OnnxProduct("scaled_matmul", arguments, scales[0], scales[1], factors, bias, nodes, finish)


def _merged_rows(
    lhs: DequantizedValue | Tensor, rhs: DequantizedValue | Tensor, transposed: bool, bias: Tensor | None
) -> tuple[DequantizedValue | Tensor, Callable[[Tensor], Tensor]] | None:
    """The lhs with its leading axes merged into one, because kernels have one dynamic axis, and the function that
    restores these axes in the result; None if that is not needed or not possible."""
    codes, weight = (s.codes if isinstance(s, DequantizedValue) else s for s in (lhs, rhs))
    whole = not isinstance(lhs, DequantizedValue) or (lhs.per_tensor and not (lhs.zero is not None and lhs.zero.shape))
    rank, lead = len(codes.shape), codes.shape[:-1]
    if rank < 3 or len(weight.shape) != 2 or lead.count(None) < 2 or transposed or not whole:
        return None
    if bias is not None and len(bias.shape) > 1:
        return None
    flat, unflatten = in_rows(codes)
    return replace(lhs, codes=flat) if isinstance(lhs, DequantizedValue) else flat, unflatten


def _groups(
    arguments: dict[str, object],
    a: DequantizedValue | Tensor,
    b: DequantizedValue | Tensor,
    lhs_transposed: bool,
    rhs_transposed: bool,
) -> int | None:
    """The group size along K, the greatest common divisor of both operands' blocks; None without blocks."""
    found = []
    for name, side, axis in (("lhs", a, -2 if lhs_transposed else -1), ("rhs", b, -1 if rhs_transposed else -2)):
        if isinstance(side, DequantizedValue) and side.block:
            shapes = [None if t is None else t.shape for t in (side.scale, side.zero)]
            codes = arguments[name]
            assert isinstance(codes, Tensor)
            found.append(group_along(codes.shape, axis, *shapes))
    groups = [g for g in found if g is not None]
    return math.gcd(*groups) if groups else None


def _align(t: Tensor | None, side: DequantizedValue) -> Tensor | None:
    """A scale or zero point reshaped to broadcast against the codes; unchanged if it has the codes' rank."""
    if t is None or not t.shape or side.block or len(t.shape) == len(side.codes.shape):
        return t
    if len(t.shape) != 1:
        raise PatternDeclined(f"a scale or zero point {t.spec} for codes {side.codes.spec}")
    return at_axis(t, side.axis, len(side.codes.shape))


# --------------------------------------------------------------------------------------------- operators on codes


@raises("onnx.QLinearMatMul")
def qlinear_matmul(op: Node) -> Tensor:
    """(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero); rows of a and columns of b may have their
    own scales."""
    a, b = op.operand(0), op.operand(3)
    lhs = quantised(a, op.operand(1), op.optional(2), len(a.shape) - 2)
    rhs = quantised(b, op.operand(4), op.optional(5), len(b.shape) - 1)
    if min(len(a.shape), len(b.shape)) > 1 and a.shape[-1] is None and b.shape[-2] is None:
        return _through_float(op, lhs, rhs, output_of(op, 6))
    return requantised(op, matmul_product(lhs, rhs), output_of(op, 6))


def _through_float(op: Node, lhs: DequantizedValue, rhs: DequantizedValue, to: Requantise) -> Tensor:
    """A product over a dynamic K, whose i32 sum cannot be proven not to wrap, as an f32 product of `code - zero`, which
    is exact up to 2^24."""
    op.left("K is dynamic, so that an i32 sum could wrap; make it static for a product of integers")
    numbers = []
    for side in (lhs, rhs):
        if not side.per_tensor or (side.zero is not None and side.zero.shape):
            raise PatternDeclined("K is dynamic and an operand has more than one scale")
        number = real(side.codes)
        if side.zero is not None:
            number = elementwise(lambda x, z: arith.subf(x, arith.sitofp(x.type, z)), [number, side.zero], "f32")
        numbers.append(number)
    total = op.graph.torch_op("MatMul", numbers, [], op)
    factor = ratio([lhs.scale, rhs.scale], to.scale)
    d = DTYPES[to.dtype]

    def body(x: ir.Value, f: ir.Value, *z: ir.Value) -> ir.Value:
        return requantise_scalar(arith.mulf(x, f), arith.sitofp(x.type, z[0]) if z else None, d)

    return elementwise(body, [total, factor, *([] if to.zero is None else [to.zero])], to.dtype)


def output_of(op: Node, i: int) -> Requantise:
    """The quantisation of a result whose scale is input `i` and whose zero point is input `i + 1`."""
    zero = op.optional(i + 1)
    scale = scale_of(op.operand(i))
    if scale.shape:
        raise PatternDeclined(f"a result with scales {scale.spec}; one value is raised")
    dtype = zero.dtype if zero is not None else "u8"
    if dtype not in BYTES:
        raise PatternDeclined(f"a result of type {dtype}")
    return Requantise(scale, zero_of(zero), dtype)


@raises("onnx.MatMulInteger")
def matmul_integer(op: Node) -> Tensor:
    """(A, B, a_zero, b_zero) to i32."""
    a, b = op.operand(0), op.operand(1)
    lhs = quantised(a, None, op.optional(2), len(a.shape) - 2)
    rhs = quantised(b, None, op.optional(3), len(b.shape) - 1)
    p = matmul_product(lhs, rhs)
    return p.finish(op.build(p.operation, **p.arguments, out_dtype="i32"))


@raises("onnx.com.microsoft.QGemm")
def qgemm(op: Node) -> Tensor:
    """(A, a_scale, a_zero, B, b_scale, b_zero, C?, y_scale?, y_zero?): `alpha * A * B + C`, with C
    added to the accumulator."""
    trans_a, trans_b = bool(op.attributes.get("transA", 0)), bool(op.attributes.get("transB", 0))
    lhs = quantised(op.operand(0), op.operand(1), op.optional(2), 1 if trans_a else 0)
    rhs = quantised(op.operand(3), op.operand(4), op.optional(5), 0 if trans_b else 1)
    alpha = float(op.attributes.get("alpha", 1.0))
    if alpha != 1.0:
        lhs = replace(lhs, scale=times(lhs.scale, Tensor.constant(np.float32(alpha))))
    c = op.optional(6)
    if c is not None and len(c.shape) == 2 and c.shape[0] == 1:
        c = drop_axis(c, 0)
    product = matmul_product(lhs, rhs, lhs_transposed=trans_a, rhs_transposed=trans_b, bias=c)
    return product.as_float(op) if op.optional(7) is None else requantised(op, product, output_of(op, 7))


@raises("onnx.com.microsoft.MatMulIntegerToFloat")
def matmul_integer_to_float(op: Node) -> Tensor:
    """(A, B, a_scale, b_scale, a_zero, b_zero, bias) to float."""
    a, b = op.operand(0), op.operand(1)
    lhs = quantised(a, op.operand(2), op.optional(4), len(a.shape) - 2)
    rhs = quantised(b, op.operand(3), op.optional(5), len(b.shape) - 1)
    bias = op.optional(6)
    product = matmul_product(lhs, rhs, bias=None if bias is None else real(bias))
    return op.sized_as(0, product.as_float(op, op.operand(2).dtype))


@raises("onnx.com.microsoft.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(op: Node) -> Tensor:
    """(A, B, b_scale, b_zero, bias): A is quantised as by DynamicQuantizeLinear."""
    b, bias = op.operand(1), op.optional(4)
    codes, scale, zero = op.build("dynamic_quantize", input=op.operand(0), granularity="tensor", recipe="onnx",
                                  symmetric=False, out_dtype="u8")  # fmt: skip
    lhs = DequantizedValue(codes, scale, zero, 0, 0, ())
    rhs = quantised(b, op.operand(2), op.optional(3), len(b.shape) - 1)
    return op.sized_as(0, matmul_product(lhs, rhs, bias=bias).as_float(op))


# ---------------------------------------------------------------------------------- operators on dequantised values


def _sides(op: Node) -> tuple[DequantizedValue | Tensor, DequantizedValue | Tensor]:
    """Both operands of a float operator; as quantised values if they are results of a DequantizeLinear."""
    lhs, rhs = quantised_input(op, 0), quantised_input(op, 1)
    if lhs is None and rhs is None:
        raise NotQuantised
    return lhs if lhs is not None else op.operand(0), rhs if rhs is not None else op.operand(1)


def taken(*sides: DequantizedValue | Tensor | None) -> tuple[Node, ...]:
    """The nodes that are absorbed with quantised operands."""
    return tuple(n for s in sides if isinstance(s, DequantizedValue) for n in s.nodes)


@raises("onnx.MatMul")
def matmul(op: Node) -> Tensor:
    """`scaled_matmul`, if an operand is the result of a DequantizeLinear; attention, if it is the last product of
    one."""
    found = attention_of(op)
    if found is not None:
        return found
    lhs, rhs = _sides(op)
    return keep(op, matmul_product(lhs, rhs, nodes=taken(lhs, rhs)))


@raises("onnx.Gemm")
def gemm(op: Node) -> Tensor:
    """`scaled_matmul`, if an operand is the result of a DequantizeLinear."""
    lhs, rhs = _sides(op)
    if float(op.attributes.get("alpha", 1.0)) != 1.0 or float(op.attributes.get("beta", 1.0)) != 1.0:
        raise PatternDeclined("Gemm with an alpha or beta other than 1")
    bias, nodes = bias_of(op, 2, lhs, rhs)
    return keep(op, matmul_product(lhs, rhs, lhs_transposed=bool(op.attributes.get("transA", 0)),
                                   rhs_transposed=bool(op.attributes.get("transB", 0)), bias=bias,
                                   nodes=(*taken(lhs, rhs), *nodes)))  # fmt: skip


def keep(op: Node, product: OnnxProduct) -> Tensor:
    """The product with a float result, recorded for a QuantizeLinear that follows."""
    made = product.as_float(op, _float_of(op))
    op.graph.products[op.index] = product
    absorb(op, *product.nodes)
    return made


def _float_of(op: Node) -> str:
    spec = op.results[0]
    dtype = spec.dtype if spec is not None else next(t.dtype for t in op.operands if t is not None)
    return dtype if dtype in ("f32", "f16", "bf16") else "f32"


def bias_of(
    op: Node, i: int, lhs: DequantizedValue | Tensor, rhs: DequantizedValue | Tensor
) -> tuple[Tensor | None, tuple[Node, ...]]:
    """The bias at input `i` and the nodes that it absorbs. i32 codes whose scale is the product of the operands' scales
    are added to the accumulator, any other bias is added as f32."""
    if op.optional(i) is None:
        return None, ()
    found = quantised_input(op, i)
    if found is not None and found.codes.dtype == "i32" and found.zero is None and not found.block:
        scales = [s.scale.array if isinstance(s, DequantizedValue) else None for s in (lhs, rhs)]
        own = found.scale.array
        if own is not None and scales[0] is not None and scales[1] is not None:
            expected = scales[0] * scales[1]
            if np.broadcast_shapes(own.shape, expected.shape) in (own.shape, expected.shape) and np.allclose(
                own, expected, rtol=1e-5, atol=0
            ):
                return found.codes, found.nodes
    bias = op.operand(i)
    if len(bias.shape) == 2 and bias.shape[0] == 1:
        bias = drop_axis(bias, 0)
    return real(scalar_of(bias) if bias.shape == (1,) and DTYPES[bias.dtype].kind == "float" else bias), ()


@raises("onnx.Einsum", "onnx.Attention")
def not_raised(op: Node) -> Tensor:
    """Imported by torch-mlir in floats. A warning names nodes with dequantised operands, because they have no integer
    form."""
    if any(quantised_input(op, i) is not None for i in range(len(op.proto.input))):
        raise PatternDeclined(f"{op.op_type} of dequantised values has no integer form")
    raise NotQuantised
