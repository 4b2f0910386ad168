"""Codes and quantisation (docs/semantics.md, sections 1 to 3, and the elementwise operations of section 4)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from .rounding import FORMATS, ROUND, ZERO, Number, add, div, half_even, mul, sub, wrap32
from .tensor import Index, Tensor, block_index, blockwise, fill, indices, read

# QLoRA (Dettmers et al. 2023), appendix E.
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)  # fmt: skip
F32 = FORMATS["f32"]


def width(dtype: str) -> int:
    """Bits of a code."""
    if dtype in ("nf4", "e2m1", "codebook"):
        return 4
    return FORMATS[dtype].bits if dtype in FORMATS else int(dtype[1:])


def code_range(dtype: str) -> tuple[int, int]:
    """`lo, hi` of an integer type."""
    b = width(dtype)
    return (-(1 << b - 1), (1 << b - 1) - 1) if dtype[0] == "i" else (0, (1 << b) - 1)


def is_integer(dtype: str) -> bool:
    return dtype[0] in "iu" and dtype[1:].isdigit()


def unpack_bits(data: list[int], bits: int, order: str, length: int) -> list[int]:
    """Unsigned codes of one row of bytes."""
    per = 8 // bits
    mask = (1 << bits) - 1
    codes = []
    for j in range(length):
        byte, place = divmod(j, per)
        if order == "low_first":
            shift = place * bits
        elif order == "high_first":
            shift = 8 - bits - place * bits
        else:
            word, i = divmod(j, 32 // bits)
            at = (i % 2) * 16 + (i // 2) * bits
            byte, shift = word * 4 + at // 8, at % 8
        codes.append((data[byte] & 255) >> shift & mask)
    return codes


def signed(code: int, dtype: str) -> int:
    """A stored code as an integer: sign-extended if its type is signed, except 1-bit codes, which stay 0 and 1."""
    b = width(dtype)
    code &= (1 << b) - 1
    return code - (1 << b) if dtype[0] == "i" and b > 1 and code >> b - 1 else code


def codes_of(array: Any, dtype: str, packing: str = "none", length: int | None = None) -> Tensor:
    """Stored codes, one per element: integers, the bits of codes of table types, or the values of float types."""
    t = read(array)
    if packing != "none":
        per = 8 // width(dtype)
        rows, n = t.shape[:-1], t.shape[-1]
        length = n * per if length is None else length
        data: list[int] = []
        for r in range(math.prod(rows)):
            data += unpack_bits(t.data[r * n : (r + 1) * n], width(dtype), packing, length)
        t = Tensor((*rows, length), data)
    if dtype in FORMATS and dtype != "e2m1":
        return t
    return t.map(lambda c: signed(c, dtype))


def value_of(code: Any, dtype: str, codebook: Tensor | None = None) -> Any:
    """The value of a code before scale and zero point are applied."""
    if dtype == "i1":
        return 2 * code - 1
    if dtype == "e2m1":
        return FORMATS["e2m1"].decode(code)
    if dtype == "nf4":
        return F32.round(Fraction(NF4[code]))
    if dtype == "codebook":
        assert codebook is not None
        return codebook.data[code]
    return code


def offset_of(dtype: str, mode: str) -> int:
    return 1 << width(dtype) - 1 if mode.startswith("offset") else 0


def dequantised(value: Any, mode: str, scale: Number, zero: Any, offset: int) -> Number:
    """The real value by section 1, in f32 steps."""
    if mode in ("offset_float", "rescale"):
        product = mul(Fraction(value - offset), scale)
        return add(product, zero) if mode == "offset_float" else sub(product, zero)
    if isinstance(value, int):
        value = F32.round(Fraction(wrap32(value - offset - int(zero))))
    return mul(value, scale)


def zero_tensor(array: Any, mode: str, dtype: str, packing: str, scale: Tensor | None) -> Tensor | None:
    """A zero point, unpacked if it is packed like the codes."""
    if array is None:
        return None
    if mode == "packed_int":
        assert scale is not None
        return codes_of(array, dtype, packing, scale.shape[-1])
    return read(array)


def dequant(input: Any, scale: Any, zero_point: Any = None, codebook: Any = None, *, dtype: str,
            zero_mode: str = "none", packing: str = "none", length: int | None = None,
            out_dtype: str = "f32") -> Tensor:  # fmt: skip
    """`qmlir.dequant`."""
    codes = codes_of(input, dtype, packing, length)
    s, book = read(scale), None if codebook is None else read(codebook)
    z = zero_tensor(zero_point, zero_mode, dtype, packing, s)
    offset = offset_of(dtype, zero_mode)

    def element(i: Index) -> Number:
        zero = blockwise(z, i, codes.shape, ZERO)
        x = dequantised(value_of(codes[i], dtype, book), zero_mode, blockwise(s, i, codes.shape, None), zero, offset)
        return FORMATS[out_dtype].round(x)

    return fill(codes.shape, element)


def requant(y: Number, inverse: Number, zero: int, lo: int, hi: int, mode: str) -> int:
    """`clamp(round(y * inverse) + zero, lo, hi)`; NaN is the zero point, clamped (section 2)."""
    return code(mul(y, inverse), zero, lo, hi, mode)


def code(scaled: Number, zero: int, lo: int, hi: int, mode: str) -> int:
    """The code of a number that is in units of the scale."""
    if scaled != scaled:
        return min(max(zero, lo), hi)
    if isinstance(scaled, float):
        return hi if scaled > 0 else lo
    return min(max(ROUND[mode](scaled) + zero, lo), hi)


def quantize(input: Any, scale: Any, zero_point: Any = None, *, out_dtype: str = "i8", rounding: str = "half_even",
             clamp: tuple[int, int] | None = None) -> Tensor:  # fmt: skip
    """`qmlir.quantize`."""
    x, s, z = read(input), read(scale), None if zero_point is None else read(zero_point)
    lo, hi = clamp or code_range(out_dtype)

    def element(i: Index) -> int:
        inverse = div(Fraction(1), blockwise(s, i, x.shape, None))
        return requant(F32.round(x[i]), inverse, int(blockwise(z, i, x.shape, 0)), lo, hi, rounding)

    return fill(x.shape, element)


def unpack(input: Any, *, dtype: str, packing: str = "low_first", length: int | None = None) -> Tensor:
    """`qmlir.unpack`."""
    return codes_of(input, dtype, packing, length)


# ------------------------------------------------------------------------------------------------ dynamic


def _range(values: list[Number]) -> tuple[Number, Number, Number]:
    """Smallest value, largest value and largest magnitude, after the range is widened to contain 0."""
    low: Number = ZERO
    high: Number = ZERO
    for v in values:
        low, high = min(low, v), max(high, v)
    return low, high, max(-low, high)


def _fbgemm(low: Number, high: Number, lo: int, hi: int) -> tuple[Number, int]:
    """FBGEMM's ChooseQuantizationParams: double precision, then the scale rounded to f32."""
    scale = (float(high) - float(low)) / (hi - lo)
    if scale == 0:
        scale = 0.1
    from_low, from_high = lo - float(low) / scale, hi - float(high) / scale
    chosen = from_low if abs(lo) + abs(float(low) / scale) < abs(hi) + abs(float(high) / scale) else from_high
    return F32.round(Fraction(scale)), min(max(half_even(Fraction(chosen)), lo), hi)


def _parameters(values: list[Number], recipe: str, symmetric: bool, lo: int, hi: int, largest: Fraction,
                eps: Fraction) -> tuple[Number, int]:  # fmt: skip
    """Scale and zero point of one group of values. `largest`: the code to which `amax` maps the largest magnitude."""
    low, high, magnitude = _range(values)
    if recipe == "fbgemm":
        return _fbgemm(low, high, lo, hi)
    if recipe == "onnx":
        scale = div(sub(high, low), Fraction(hi - lo))
        if scale == 0:
            scale = Fraction(1)
        return scale, min(max(half_even(sub(Fraction(lo), div(low, scale))), lo), hi)
    if symmetric:
        by = largest if recipe in ("amax", "aiter") else Fraction(hi - lo, 2)
        scale = div(magnitude, by)
        if recipe in ("amax", "aiter"):
            return (Fraction(1) if magnitude == 0 else scale), 0
        return max(scale, eps), 0
    scale = max(div(sub(high, low), Fraction(hi - lo)), eps)
    if scale == 0:
        return scale, lo
    return scale, min(max(lo - half_even(div(low, scale)), lo), hi)


def _groups(shape: tuple[int, ...], granularity: str, group_size: int | None) -> tuple[int, ...]:
    if granularity == "tensor":
        return ()
    return (*shape[:-1], 1 if granularity == "token" else shape[-1] // group_size)  # type: ignore[operator]


def dynamic_quantize(input: Any, *, granularity: str = "token", group_size: int | None = None, symmetric: bool = True,
                     rounding: str = "half_even", recipe: str = "torchao", out_dtype: str = "i8",
                     clamp: tuple[int, int] | None = None, eps: float = 0.0) -> list[Tensor]:  # fmt: skip
    """`qmlir.dynamic_quantize`: codes, scales and, when not symmetric, zero points."""
    x = read(input).map(F32.round)
    shape = _groups(x.shape, granularity, group_size)
    members: dict[Index, list[Number]] = {g: [] for g in indices(shape)}
    for i in indices(x.shape):
        members[block_index(i, x.shape, shape)].append(x[i])
    small = FORMATS.get(out_dtype)
    lo, hi = clamp or ((0, 0) if small else code_range(out_dtype))
    chosen = {}
    for g, values in members.items():
        if small:
            _, _, magnitude = _range(values)
            one = recipe in ("amax", "aiter") and magnitude == 0
            chosen[g] = (Fraction(1) if one else max(div(magnitude, small.largest), F32.round(Fraction(eps)))), 0
        else:
            chosen[g] = _parameters(values, recipe, symmetric, lo, hi, Fraction(hi), F32.round(Fraction(eps)))

    def element(i: Index) -> Any:
        scale, zero = chosen[block_index(i, x.shape, shape)]
        scaled = div(x[i], scale) if recipe in ("onnx", "aiter") else mul(x[i], div(Fraction(1), scale))
        if small:
            return ZERO if scaled != scaled else small.round(scaled, saturate=True)
        return code(scaled, zero, lo, hi, rounding)

    results = [fill(x.shape, element), fill(shape, lambda g: chosen[g][0])]
    return results if symmetric else [*results, fill(shape, lambda g: chosen[g][1])]


__all__ = ["dequant", "dynamic_quantize", "quantize", "unpack"]
