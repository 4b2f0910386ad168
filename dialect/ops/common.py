"""Rules that several operations share: element types, shapes of scales and zero points, exactness of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.mlir import ir
from ..constants import constant_array
from ..dtypes import DTYPES, DType
from ..ods import Attributes, AxisSizes, Keywords, Operands, fail
from ..packing import packed_length
from ..shapes import Shape, ShapeError, blocks, show
from ..sizes import Size

_BY_MLIR = {d.mlir: d for d in DTYPES.values() if d.kind == "float"} | {
    "i8": DTYPES["i8"],
    "i16": DTYPES["i16"],
    "i32": DTYPES["i32"],
    "i64": DTYPES["i64"],
    "i1": DTYPES["bool"],
}


@dataclass(frozen=True)
class Intermediate:
    """A value inside a composite operation. Only its type is known: it is not a constant and has no defining op."""

    type: ir.Type
    owner: None = None


def tensor_type(shape: Sequence[int | None], dtype: str) -> ir.Type:
    """The tensor type that holds values of a dtype (`f32`, `i4`, ...); `None` is a dynamic size."""
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([dynamic if s is None else s for s in shape], ir.Type.parse(DTYPES[dtype].mlir))


def shape_of(value: Intermediate | ir.Value) -> Shape:
    """The size of each axis, `None` if it is dynamic."""
    t = value if isinstance(value, ir.Type) else value.type
    return tuple(None if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank))


def element_of(value: Intermediate | ir.Type | ir.Value) -> DType:
    """The dtype that the element type alone implies (i8 is read as signed)."""
    t = value if isinstance(value, ir.Type) else value.type
    name = str(t.element_type)
    if name not in _BY_MLIR:
        fail(f"has an element type {name}, which is unsupported")
    return _BY_MLIR[name]


def code_dtype(value: Intermediate | ir.Value, stated: str | None, name: str) -> DType:
    """The dtype of an operand: the one that the attribute states, else the one that the element type implies.

    Raises OpError if the two contradict each other.
    """
    element = element_of(value)
    if stated is None:
        return element
    d = DTYPES[stated]
    if d.mlir != element.mlir:
        fail(f"attribute '{name}_dtype' says '{stated}', which is stored as {d.mlir}, but '{name}' is {value.type}")
    return d


def logical_shape(shape: Shape, d: DType, packing: str, length: int | None, name: str) -> Shape:
    """The shape in codes of an operand packed along its last axis. `length` is the true size of this axis if another
    operand or the result determines it."""
    if packing == "none":
        return shape
    if not d.bits < 8:
        fail(f"'{name}' has packing '{packing}', but {d.name} codes fill a byte; use packing 'none'")
    if not shape:
        fail(f"'{name}' has packing '{packing}', but no axis to be packed along")
    last = shape[-1]
    if packing == "interleaved" and last is not None and last % 4:
        fail(f"'{name}' has {last} bytes along its last axis, but packing 'interleaved' fills words of 4")
    if length is None:
        return (*shape[:-1], None if last is None else last * d.per_byte)
    if last is not None and packed_length(length, d, packing) != last:
        fail(
            f"'{name}' has {last} bytes along its last axis, but {length} {d.name} codes packed '{packing}' take "
            f"{packed_length(length, d, packing)}"
        )
    return (*shape[:-1], length)


def scale_blocks(scale: Intermediate | ir.Value, shape: Shape, name: str, of: str) -> tuple[int | None, ...]:
    """`shapes.blocks` of a value, as a verifier rule: raises OpError."""
    return shape_blocks(shape_of(scale), shape, name, of)


def shape_blocks(scale: Shape, shape: Shape, name: str, of: str) -> tuple[int | None, ...]:
    """`shapes.blocks`, as a verifier rule: raises OpError."""
    try:
        return blocks(scale, shape, name, of)
    except ShapeError as e:
        fail(str(e))


def packed_zero_shape(zero: ir.Value, scale: ir.Value, d: DType, packing: str, name: str) -> Shape:
    """The shape in codes of a zero point in mode `packed_int`: one per scale, packed like the weight's codes."""
    if scale is None or not shape_of(scale):
        fail(f"'{name}' is packed along its last axis, which a scale of the same shape must tell")
    return logical_shape(shape_of(zero), d, packing, shape_of(scale)[-1], name)


def axes_along(own: Shape, axes: AxisSizes, shape: Shape) -> AxisSizes:
    """The sizes (see `Op.sizes`) of an operand of shape `own` that broadcasts, perhaps in blocks, to one of `shape`,
    whose sizes are `axes`."""
    count = len(own)
    if count > len(shape):
        return (None,) * count

    def size(mine: int | None, axis: str | Size | int | None, theirs: int | None) -> str | Size | int | None:
        blocked = mine is not None and theirs is not None and mine != theirs
        return None if mine == 1 or blocked else axis

    if not count:
        return ()
    return tuple(size(*x) for x in zip(own, axes[-count:], shape[-count:], strict=True))


def packed_axes(axes: AxisSizes, d: DType, packing: str) -> AxisSizes:
    """The sizes in bytes of an operand whose sizes in codes are `axes`. `interleaved` leaves out the last size."""
    if packing == "none" or not axes or not isinstance(axes[-1], str):
        return axes
    if packing == "interleaved":
        return (*axes[:-1], None)
    return (*axes[:-1], Size(axes[-1], 1, d.per_byte - 1, d.per_byte))


def routed_shape(ids: ir.Value) -> tuple[int | None, int]:
    """The shape `[T, topk]` of `expert_ids`. Raises OpError unless topk is static."""
    shape = shape_of(ids)
    if len(shape) != 2 or shape[1] is None:
        fail(f"'expert_ids' has shape {show(shape)}, but must be [T, topk] with a static topk")
    return shape[0], shape[1]


def check_codebook(codebook: ir.Value | None, d: DType, name: str) -> None:
    """Check that a codebook is given exactly for dtype `codebook`. `name` is the operand that holds the codes."""
    if d.name == "codebook" and codebook is None:
        fail(f"'{name}' has dtype 'codebook', which needs operand 'codebook' with 16 values")
    if codebook is None:
        return
    if d.name != "codebook":
        fail(f"operand 'codebook' is given, but '{name}' has dtype '{d.name}'; state 'codebook'")
    if shape_of(codebook) != (16,):
        fail(f"'codebook' must have shape [16], but has {show(shape_of(codebook))}")


def check_zero_point(zero: ir.Value | None, mode: str, d: DType, name: str, packing: str) -> None:
    """Check that a zero point fits its mode. `name` is `lhs`, `rhs` or ""."""
    prefix = f"{name}_" if name else ""
    attribute = f"{prefix}zero_mode"
    if mode.startswith("offset") and (not d.is_int or d.signed):
        fail(f"attribute '{attribute}' is '{mode}', which reads unsigned codes, but they are {d.name}")
    if zero is None:
        if mode not in ("none", "offset_int", "offset_float"):
            fail(f"attribute '{attribute}' is '{mode}', which needs operand '{prefix}zero_point'")
        return
    if mode == "none":
        fail(f"operand '{prefix}zero_point' is given, but '{attribute}' is 'none'; state 'int' or another mode")
    is_float = element_of(zero).kind == "float"
    if mode in ("offset_float", "rescale"):
        if not is_float:
            fail(f"operand '{prefix}zero_point' must be float in mode '{mode}', but is {zero.type}")
    elif is_float:
        fail(f"operand '{prefix}zero_point' must be integer in mode '{mode}', but is {zero.type}")
    if mode == "packed_int" and packing == "none":
        fail(
            f"attribute '{attribute}' is 'packed_int', but '{prefix}packing' is 'none'; use 'int' for unpacked zero "
            "points"
        )
    if not d.is_int:
        fail(f"operand '{prefix}zero_point' is given, but {d.name} values have no zero point")


def magnitude(d: DType, mode: str, zero: ir.Value | None) -> int:
    """The largest |code - zero point| that can occur."""
    lo, hi = d.lo, d.hi
    if mode.startswith("offset"):
        lo, hi = lo - (1 << (d.bits - 1)), hi - (1 << (d.bits - 1))
    if zero is not None and mode in ("int", "offset_int", "packed_int"):
        # Packed zero points are codes. 8-bit ones have the signedness of the codes, signed for `offset_int`.
        known = None if mode == "packed_int" else constant_array(zero)
        if known is not None and known.dtype == np.int8 and not d.signed and mode == "int":
            known = known.view(np.uint8)
        zlo, zhi = (int(known.min()), int(known.max())) if known is not None and known.size else (d.lo, d.hi)
        lo, hi = lo - zhi, hi - zlo
    return max(abs(lo), abs(hi))


def check_exact(k: int | None, lhs: int, rhs: int, group: bool) -> None:
    """Check that the exact i32 sum cannot wrap: `k * |lhs| * |rhs|` stays below 2^31."""
    if k is None:
        fail("K is dynamic, so that the i32 sum cannot be shown not to overflow; make K static")
    worst = k * lhs * rhs
    if worst > 2**31 - 1:
        most = (2**31 - 1) // (lhs * rhs)
        what = f"a group of {k}" if group else f"K = {k}"
        fail(
            f"the exact i32 sum over {what} can reach {worst}, which is more than 2^31 - 1; with these codes and "
            f"zero points it is exact up to {most}: use scales in groups along K of at most that size"
        )


def check_broadcast(own: Shape, shape: Shape, name: str) -> None:
    """Check that `own` broadcasts to `shape` by numpy's rule."""
    padded = (1,) * (len(shape) - len(own)) + own
    if len(own) > len(shape) or any(s != 1 and d is not None and s is not None and s != d
                                    for s, d in zip(padded, shape, strict=False)):  # fmt: skip
        fail(f"'{name}' has shape {show(own)}, which does not broadcast to the result's {show(shape)}")


def same(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a == b


def check_result(value: Intermediate | ir.Value, expected: Shape, what: str = "result") -> None:
    """Check that the declared result shape is the one that the operands determine."""
    own = shape_of(value)
    if len(own) != len(expected) or not all(same(x, y) for x, y in zip(own, expected, strict=True)):
        fail(f"{what} has shape {show(own)}, but the operands give {show(expected)}")


def check_clamp(clamp: Sequence[int] | None, d: DType, least: int = 1) -> None:
    """Check that the bounds (low, high), if given, are a range of at least `least` codes of `d`."""
    if clamp is not None and not (d.lo <= clamp[0] <= clamp[1] + 1 - least and clamp[1] <= d.hi):
        fail(f"'clamp' {list(clamp)} is not a range of codes within [{d.lo}, {d.hi}] of {d.name}")


def unpacked(operands: Operands, attributes: Attributes, dtype: str | None) -> Shape:
    """The shape of `input` in codes, for `infer`."""
    shape = operands["input"][0]
    if attributes["packing"] == "none" or dtype is None:
        return shape
    length = attributes["length"]
    if length is not None and length < 0:
        raise ValueError(f"'length' is {length}, but must not be negative")
    last = shape[-1]
    return (
        *shape[:-1],
        length if length is not None else None if last is None else last * DTYPES[dtype].per_byte,
    )


def with_bounds(given: Keywords) -> Keywords:
    """The arguments of a product's function that are not None, with the bounds of activation "clamp" as `act_clamp`:
    a caller may write `activation="clamp(lo, hi)"` or `activation="clamp", clamp=(lo, hi)`. Otherwise `clamp` bounds
    codes.

    Raises ValueError if the activation does not have two bounds."""
    kw = dict(given)
    activation = kw.get("activation") or "none"
    if activation.startswith("clamp("):
        try:
            lo, hi = map(float, activation.removeprefix("clamp(").removesuffix(")").split(","))
        except ValueError:
            raise ValueError(f"activation={activation!r} must have two bounds, as 'clamp(0, 6)'") from None
        kw["activation"], kw["act_clamp"] = "clamp", (lo, hi)
    elif activation == "clamp" and kw.get("act_clamp") is None:
        kw["act_clamp"] = kw.pop("clamp", None)
        if kw["act_clamp"] is None:
            raise ValueError('activation="clamp" needs clamp=(lo, hi)')
    return {k: v for k, v in kw.items() if v is not None}
