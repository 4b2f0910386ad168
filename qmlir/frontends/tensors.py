"""Computations on `Tensor`s that a framework's quantised ops need in addition to the dialect's operations.

Everything is built at the current insertion point from linalg and arith; IREE fuses it with its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..core.mlir import arith, ir, math, tensor
from ..dialect.dtypes import DTYPES, SMALL_FLOATS, DType
from ..dialect.shapes import Shape
from ..ir import build
from ..ir.scalars import clamp, const, f32, i32, requantize, round_to, to_f32, to_i32
from ..spec import TensorSpec
from .raising import PatternDeclined, Tensor

Scalars: TypeAlias = "Callable[..., ir.Value]"


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape to which `shapes` broadcast by numpy's rule; dynamic sizes are assumed to be equal.

    Raises PatternDeclined for shapes that do not broadcast.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[int | None] = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        known = {s for s in sizes if s is not None and s != 1}
        if len(known) > 1:
            raise PatternDeclined(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
        out.append(known.pop() if known else None if None in sizes else 1)
    return tuple(out)


def elementwise(body: Scalars, tensors: Sequence[Tensor], dtype: str) -> Tensor:
    """Apply `body` to the scalars of `tensors`, broadcast; it returns a scalar of the type that stores `dtype`."""
    shape = broadcast([t.shape for t in tensors])
    values = [t.value for t in tensors]
    sizes: list[ir.Value | int] = []
    for axis, size in enumerate(shape):
        if size is not None:
            sizes.append(size)
            continue
        at, value = next(
            (axis - len(shape) + len(t.shape), v)
            for t, v in zip(tensors, values, strict=True)
            if axis - len(shape) + len(t.shape) >= 0 and t.shape[axis - len(shape) + len(t.shape)] is None
        )
        sizes.append(tensor.dim(value, build.index(at)))
    args = [build.Arg.aligned(v, sizes) for v in values]
    made = build.elementwise(args, sizes, build.element(dtype), body)
    return Tensor(TensorSpec(shape, dtype), made)


def number(x: ir.Value, dtype: str) -> ir.Value:
    """The value of a stored scalar of `dtype` as f32 (for a code, without its scale)."""
    d = DTYPES[dtype]
    if dtype == "e8m0":
        code = arith.extui(i32(), arith.bitcast(ir.IntegerType.get_signless(8), x))
        # 2^(code - 127); code 0 is 2^-127, which is not a normal f32.
        shifted = arith.shli(code, build.scalar(23, i32()))
        smallest = build.scalar(0x00400000, i32())
        bits = arith.select(_eq(code, 0), smallest, shifted)
        nan = build.scalar(0x7FC00000, i32())
        return arith.bitcast(f32(), arith.select(_eq(code, 255), nan, bits))
    if dtype == "e2m1":
        made: ir.Value = _e2m1(x)
        return made
    return to_f32(x, unsigned=d.is_int and not d.signed)


def _e2m1(x: ir.Value) -> ir.Value:
    """The value of an fp4 code: a sign bit, two exponent bits (bias 1), one mantissa bit."""
    code = to_i32(x, unsigned=True)
    low = arith.andi(code, build.scalar(7, i32()))
    # Twice the value: 0 1 2 3 | 4 6 | 8 12.
    exponent = arith.shrui(low, build.scalar(1, i32()))
    mantissa = arith.andi(low, build.scalar(1, i32()))
    normal = arith.shli(arith.addi(mantissa, build.scalar(2, i32())), arith.subi(exponent, build.scalar(1, i32())))
    twice = arith.select(_eq(exponent, 0), mantissa, normal)
    size = arith.mulf(arith.sitofp(f32(), twice), const(0.5))
    negative = arith.cmpi(arith.CmpIPredicate.sge, arith.andi(code, build.scalar(15, i32())), build.scalar(8, i32()))
    return arith.select(negative, arith.negf(size), size)


def _eq(a: ir.Value, b: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, a, build.scalar(b, a.type))


def integer(x: ir.Value, dtype: str) -> ir.Value:
    """A stored integer scalar as i32."""
    return to_i32(x, unsigned=not DTYPES[dtype].signed)


def real(t: Tensor) -> Tensor:
    """The values of a tensor's elements as f32 (for codes, without their scale)."""
    if t.dtype == "f32":
        return t
    if t.array is not None and DTYPES[t.dtype].kind != "table" and t.dtype != "e8m0":
        return Tensor.constant(t.array.astype(np.float32))
    return elementwise(lambda x: number(x, t.dtype), [t], "f32")


def cast_real(t: Tensor, dtype: str) -> Tensor:
    """Convert f32 to another float type, except small floats."""
    if dtype == "f32":
        return t
    kind = build.element(dtype)
    return elementwise(lambda x: (arith.extf if kind.width > 32 else arith.truncf)(kind, x), [t], dtype)


def cast_integer(t: Tensor, dtype: str) -> Tensor:
    """Convert integers to another type: a longer type keeps their values, a shorter one their low bits."""
    if t.dtype == dtype:
        return t
    if t.array is not None:
        return Tensor.constant(t.array.astype(DTYPES[dtype].numpy), dtype)
    kind, extend = build.element(dtype), arith.extsi if DTYPES[t.dtype].signed else arith.extui
    made = extend if kind.width > build.element(t.dtype).width else arith.trunci
    return elementwise(lambda x: made(kind, x), [t], dtype)


def store_integer(x: ir.Value, d: DType) -> ir.Value:
    """Convert an i32 scalar to the type that stores `d`."""
    kind = build.element(d.name)
    return x if kind == i32() else arith.extsi(kind, x) if kind.width > 32 else arith.trunci(kind, x)


def quantised(x: ir.Value, zero: ir.Value | None, d: DType) -> ir.Value:
    """`clamp(round(x) + zero)` for an f32 scalar that is already divided by its scale."""
    return requantize(x, None, zero, "half_even", d.lo, d.hi, build.element(d.name))


def small_float_code(x: ir.Value, dtype: str, saturate: bool) -> ir.Value:
    """f32 `x` as the code (i32) of a small float, rounded half to even. Out of range, `saturate` gives the largest
    finite value; otherwise infinity or NaN, whichever the type has. By integer arithmetic, bit-exact on every target.

    Source: ONNX, technical/float8.md; OCP 8-bit Floating Point Specification 1.0.
    """
    mantissa, least = _FORMATS[dtype]
    top = _LARGEST[dtype]

    def c(value: int) -> ir.Value:
        return build.scalar(value, i32())

    bits = arith.bitcast(i32(), x)
    magnitude = arith.andi(bits, c(0x7FFFFFFF))
    finite = arith.cmpi(arith.CmpIPredicate.slt, magnitude, c(0x7F800000))
    size = arith.select(finite, magnitude, c(0))
    exponent = arith.maxsi(arith.subi(arith.shrui(size, c(23)), c(127)), c(least))
    # The magnitude in units in the last place of its binade: scaled by a power of two, hence exact.
    unit = arith.bitcast(f32(), arith.shli(arith.subi(c(mantissa + 127), exponent), c(23)))
    units = arith.fptosi(i32(), math.roundeven(arith.mulf(arith.bitcast(f32(), size), unit)))
    # A rounding that reaches the next binade carries into the exponent's field.
    code = arith.addi(units, arith.shli(arith.subi(exponent, c(least)), c(mantissa)))
    over = arith.ori(arith.cmpi(arith.CmpIPredicate.sgt, code, c(top)), _eq(magnitude, 0x7F800000))
    code = arith.select(over, c(top if saturate else _BEYOND[dtype]), code)
    sign = arith.shli(arith.shrui(bits, c(31)), c(3 if dtype == "e2m1" else 7))
    if "fnuz" in dtype:  # there is no negative zero: its code is NaN's
        sign = arith.select(_eq(code, 0), c(0), sign)
    nan = arith.cmpi(arith.CmpIPredicate.sgt, magnitude, c(0x7F800000))
    return arith.select(nan, c(_NAN[dtype]), arith.ori(code, sign))


def scale_code(x: ir.Value, mode: str, saturate: bool) -> ir.Value:
    """f32 `x` as the code (i32) of an e8m0, a power of two; `mode` is the rounding: `up`, `down` or `nearest`.

    Source: ONNX, Cast, round_mode; OCP Microscaling Formats 1.0, section 5.4.
    """

    def c(value: int) -> ir.Value:
        return build.scalar(value, i32())

    bits = arith.andi(arith.bitcast(i32(), x), c(0x7FFFFFFF))
    step = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}[mode]
    code = arith.shrui(arith.addi(bits, c(step)), c(23))
    beyond = arith.cmpi(arith.CmpIPredicate.sge, code, c(255))
    code = arith.select(beyond, c(254 if saturate else 255), code)
    nan = arith.cmpi(arith.CmpIPredicate.sgt, bits, c(0x7F800000))
    return arith.select(nan, c(255), code)


def scalar_of(t: Tensor) -> Tensor:
    """A tensor of one element as a scalar. Raises PatternDeclined for any other size."""
    if any(s != 1 for s in t.shape):
        raise PatternDeclined(f"a tensor {t.spec} is given where a tensor of one element is expected")
    if not t.shape:
        return t
    if t.array is not None:
        return Tensor.constant(t.array.reshape(()), t.dtype)
    return Tensor(TensorSpec((), t.dtype), build.drop_axes(t.value, range(len(t.shape))))


def at_axis(t: Tensor, axis: int, rank: int) -> Tensor:
    """Reshape a vector `[C]` to `rank` axes, with C at `axis`: `[1, .., C, .., 1]`."""
    shape = tuple(t.shape[0] if i == axis else 1 for i in range(rank))
    if t.array is not None:
        return Tensor.constant(t.array.reshape([t.array.size if i == axis else 1 for i in range(rank)]), t.dtype)
    if rank == 1:
        return t
    size = build.dims(t.value)[0]
    return Tensor(TensorSpec(shape, t.dtype), build.expand(t.value, [[size if i == axis else 1 for i in range(rank)]]))


def new_axis(t: Tensor, axis: int) -> Tensor:
    """Insert a unit axis before `axis`."""
    shape = (*t.shape[:axis], 1, *t.shape[axis:])
    if t.array is not None:
        return Tensor.constant(np.expand_dims(t.array, axis), t.dtype)
    groups = [[s] for s in build.dims(t.value)]
    if axis:
        groups[axis - 1].append(1)
    else:
        groups[0].insert(0, 1)
    return Tensor(TensorSpec(shape, t.dtype), build.expand(t.value, groups))


def drop_axis(t: Tensor, axis: int) -> Tensor:
    """Drop the unit axis `axis`."""
    shape = t.shape[:axis] + t.shape[axis + 1 :]
    if t.array is not None:
        return Tensor.constant(np.squeeze(t.array, axis), t.dtype)
    return Tensor(TensorSpec(shape, t.dtype), build.drop_axes(t.value, [axis]))


def part(t: Tensor, axis: int, start: int, count: int) -> Tensor:
    """Slice `count` elements along an axis, from index `start` on."""
    if start == 0 and count == t.shape[axis]:
        return t
    sizes, low = build.dims(t.value), [0] * len(t.shape)
    sizes[axis], low[axis] = count, start
    return Tensor(TensorSpec((*t.shape[:axis], count, *t.shape[axis + 1 :]), t.dtype), build.crop(t.value, low, sizes))


def at_index(t: Tensor, axis: int, place: int) -> Tensor:
    """The slice at one index along an axis, without that axis."""
    return drop_axis(part(t, axis, place, 1), axis)


def one_more(t: Tensor, axis: int) -> Tensor:
    """Append one slice of zeros along an axis."""
    size, high = t.shape[axis], [int(i == axis) for i in range(len(t.shape))]
    zero = arith.constant(t.value.type.element_type, 0.0)
    shape = (*t.shape[:axis], None if size is None else size + 1, *t.shape[axis + 1 :])
    return Tensor(TensorSpec(shape, t.dtype), build.pad(t.value, [0] * len(high), high, zero))


def in_rows(t: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The tensor as a matrix: all axes except the last become one; and a function that restores these axes of a matrix
    with as many rows."""
    lead, sizes = t.shape[:-1], build.dims(t.value)[:-1]
    if len(lead) == 1:
        return t, lambda made: made
    rows = 1
    for size in lead:
        rows *= size or 0
    value = build.collapse(t.value, [list(range(len(lead))), [len(lead)]])

    def unflatten(made: Tensor) -> Tensor:
        wide = build.expand(made.value, [sizes, [build.dims(made.value)[-1]]])
        return Tensor(TensorSpec((*lead, made.shape[-1]), made.dtype), wide)

    return Tensor(TensorSpec((None if None in lead else rows, t.shape[-1]), t.dtype), value), unflatten


def repeat(t: Tensor, axis: int, times: int, size: int | None) -> Tensor:
    """Repeat each element along `axis` `times` times, and keep the first `size` elements.

    Raises PatternDeclined if the axis or `size` is dynamic, or the repeated elements are fewer than `size`."""
    own = t.shape[axis]
    if own is None or size is None:
        raise PatternDeclined(f"blocks along axis {axis}, whose size is dynamic")
    wide = own * times
    if size > wide:
        raise PatternDeclined(f"{t.shape[axis]} blocks of {times} along axis {axis} do not cover its size {size}")
    if t.array is not None:
        cut = np.repeat(t.array, times, axis)
        return Tensor.constant(np.take(cut, range(size), axis), t.dtype)
    value = build.repeat(t.value, axis, times)
    sizes = build.dims(value)
    sizes[axis] = size
    shape = (*t.shape[:axis], size, *t.shape[axis + 1 :])
    if size != wide:
        value = build.crop(value, [0] * len(shape), sizes)
    return Tensor(TensorSpec(shape, t.dtype), value)


# Mantissa bits, and the exponent of the smallest normal value.
_FORMATS = {name: (f.mantissa, f.min_exponent) for name, f in SMALL_FLOATS.items()} | {"e2m1": (1, 0)}
# Codes of the largest finite value, of values beyond it without saturation, and of NaN (fp4 has none: NaN becomes -0,
# as in ONNX's tests).
_LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B, "e4m3fnuz": 0x7F, "e5m2fnuz": 0x7F, "e2m1": 7}
_BEYOND = {"e4m3": 0x7F, "e5m2": 0x7C, "e4m3fnuz": 0x80, "e5m2fnuz": 0x80, "e2m1": 7}
_NAN = {"e4m3": 0x7F, "e5m2": 0x7F, "e4m3fnuz": 0x80, "e5m2fnuz": 0x80, "e2m1": 8}

__all__ = [
    "at_axis",
    "at_index",
    "broadcast",
    "cast_real",
    "clamp",
    "drop_axis",
    "elementwise",
    "in_rows",
    "integer",
    "new_axis",
    "number",
    "one_more",
    "part",
    "quantised",
    "real",
    "repeat",
    "round_to",
    "scalar_of",
    "scale_code",
    "small_float_code",
    "store_integer",
]  # fmt: skip
