"""Cast and CastLike to and from the types that torch does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.mlir import arith
from ....dialect.dtypes import DTYPES, DType
from ....ir import build
from ....ir.scalars import i32
from ...raising import NotQuantised, PatternDeclined, Tensor, raises
from ...tensors import (
    cast_integer,
    cast_real,
    elementwise,
    integer,
    real,
    scale_code,
    small_float_code,
    store_integer,
)  # fmt: skip
from ..node import Node
from ..types import ELEMENTS, element_name

if TYPE_CHECKING:
    from ....core.mlir import ir

_SMALL = ("i4", "u4", "i2", "u2", "i16", "u16", "e2m1", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0")
_PLAIN = ("f32", "f16", "bf16", "f64")


@raises("onnx.Cast")
def cast(op: Node) -> Tensor:
    """A cast from or to i16, u16, u32, a type below 8 bits, or an 8-bit float. Others are imported by torch-mlir."""
    to = int(op.attributes.get("to", 0))
    if to not in ELEMENTS:
        raise PatternDeclined(f"the type to cast to is {element_name(to)}")
    return _cast(op, op.operand(0), ELEMENTS[to].dtype)


@raises("onnx.CastLike")
def cast_like(op: Node) -> Tensor:
    """A cast from or to i16, u16, u32, a type below 8 bits, or an 8-bit float. Others are imported by torch-mlir."""
    return _cast(op, op.operand(0), op.operand(1).dtype)


def _cast(op: Node, x: Tensor, dtype: str) -> Tensor:
    if x.dtype == dtype:
        return x
    if (x.dtype == "u32" and dtype in (*_PLAIN, "i64")) or (dtype == "u32" and x.dtype in _PLAIN):
        return _of_u32(x, dtype)
    if x.dtype not in _SMALL and dtype not in _SMALL:
        raise NotQuantised  # types that torch has
    return convert(x, dtype, bool(op.attributes.get("saturate", 1)), op.attributes.get("round_mode", "up"))


def _of_u32(x: Tensor, dtype: str) -> Tensor:
    """A cast between u32, which torch does not have, and floats or i64."""
    if dtype in ("f32", "f16", "bf16"):
        return cast_real(real(x), dtype)
    if dtype == "u32":
        i64 = build.element("i64")
        return elementwise(lambda v: arith.trunci(i32(), arith.fptosi(i64, v)), [x], dtype)
    if dtype == "i64":
        return cast_integer(x, dtype)
    kind = build.element(dtype)
    return elementwise(lambda v: arith.uitofp(kind, v), [x], dtype)


def convert(x: Tensor, dtype: str, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Convert `x` to `dtype`. Floats are rounded toward zero to i32 and then keep their low bits; integers keep their
    low bits. Conversions to small floats round half to even, those to e8m0 by `round_mode`.

    Source: ONNX, Cast.
    """
    source, target = DTYPES[x.dtype], DTYPES[dtype]
    if dtype in _PLAIN and x.dtype not in ("i64", "bool"):
        return cast_real(real(x), dtype)
    if source.name in ("bool", "i64") or dtype == "bool":
        raise PatternDeclined(f"a cast from {x.dtype} to {dtype}")
    if target.is_int:
        kind = build.element(dtype)
        if source.is_int:
            return elementwise(lambda v: _narrow(integer(v, x.dtype), target, kind), [x], dtype)
        return elementwise(lambda v: _narrow(arith.fptosi(i32(), v), target, kind), [real(x)], dtype)
    kind, byte = build.element(dtype), build.element("i8")

    def body(v: ir.Value) -> ir.Value:
        wide = scale_code(v, round_mode, saturate) if dtype == "e8m0" else small_float_code(v, dtype, saturate)
        code = arith.trunci(byte, wide)
        return code if kind == byte else arith.bitcast(kind, code)

    return elementwise(body, [real(x)], dtype)


def _narrow(x: ir.Value, target: DType, kind: ir.Type) -> ir.Value:
    """The low bits of an i32, sign- or zero-extended by the signedness of `target`."""
    if target.bits < 8:
        shift = build.scalar(32 - target.bits, i32())
        x = (arith.shrsi if target.signed else arith.shrui)(arith.shli(x, shift), shift)
    return store_integer(x, DTYPES["i32"] if kind == i32() else target)
