"""Element types: one table of names, ranges and their numpy and MLIR spellings.

Names are numpy-like and short: `i8`, `u8`, `i4` ... for integer codes, `f32`, `f16`, `bf16` for floats,
`e4m3`, `e5m2`, `e4m3fnuz`, `e5m2fnuz`, `e8m0`, `e2m1` for the OCP and FNUZ small floats, `nf4` for
QLoRA's normal-float codes and `codebook` for any 16-entry table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NumpyType = np.dtype[Any]


@dataclass(frozen=True)
class DType:
    """An element type. `lo`..`hi` is the range of the stored integer; floats and table types have none."""

    name: str
    bits: int
    kind: str  # "int" | "float" | "table"
    mlir: str  # element type of the tensor that holds it
    lo: int = 0
    hi: int = 0

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def signed(self) -> bool:
        return self.lo < 0

    @property
    def numpy(self) -> NumpyType:
        """The numpy type of a stored element (one byte for every sub-byte code)."""
        return _numpy(self.name)

    @property
    def per_byte(self) -> int:
        return max(1, 8 // self.bits)

    @property
    def largest(self) -> float:
        """The largest finite value of an integer code or an 8-bit float."""
        return SMALL_FLOATS[self.name].largest if self.name in SMALL_FLOATS else float(self.hi)

    @property
    def magnitude(self) -> int:
        """The largest |value| of a code (a 1-bit signed code means 2q - 1)."""
        return 1 if self.name == "i1" else max(abs(self.lo), abs(self.hi))


def _int(name: str, bits: int, storage: str) -> DType:
    signed = name[0] == "i"
    if name == "i1":
        return DType(name, 1, "int", storage, -1, 1)
    lo, hi = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return DType(name, bits, "int", storage, lo, hi)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        *(_int(f"{s}{b}", b, "i8") for b in (8, 4, 2, 1) for s in "iu"),
        _int("i16", 16, "i16"),
        _int("u16", 16, "i16"),
        _int("i32", 32, "i32"),
        _int("u32", 32, "i32"),
        _int("i64", 64, "i64"),
        DType("bool", 8, "int", "i1", 0, 1),
        DType("f32", 32, "float", "f32"),
        DType("f64", 64, "float", "f64"),
        DType("f16", 16, "float", "f16"),
        DType("bf16", 16, "float", "bf16"),
        DType("e4m3", 8, "float", "f8E4M3FN"),
        DType("e5m2", 8, "float", "f8E5M2"),
        DType("e4m3fnuz", 8, "float", "f8E4M3FNUZ"),
        DType("e5m2fnuz", 8, "float", "f8E5M2FNUZ"),
        DType("e8m0", 8, "float", "f8E8M0FNU"),
        DType("e2m1", 4, "table", "i8"),
        DType("nf4", 4, "table", "i8"),
        DType("codebook", 4, "table", "i8"),
    )
}

# Dtypes of quantised codes: the 8-bit integers, then the types below a byte.
CODES = ("i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "e2m1", "nf4", "codebook")


class SmallFloat(NamedTuple):
    """An 8-bit float type: its largest finite number, the exponent of its smallest normal number, its number of
    mantissa bits, and how it encodes infinity and NaN."""

    largest: float
    min_exponent: int
    mantissa: int
    special: str  # "inf": infinity and NaN as in IEEE 754 | "fn": all ones is NaN | "fnuz": negative zero is NaN

    @property
    def bias(self) -> int:
        """The bias of the stored exponent; a stored exponent of 1 is that of the smallest normal number."""
        return 1 - self.min_exponent


# OCP 8-bit Floating Point Specification 1.0, table 1; the FNUZ forms are Noune et al. 2022, arXiv:2206.02915.
SMALL_FLOATS = {
    "e4m3": SmallFloat(448.0, -6, 3, "fn"),
    "e5m2": SmallFloat(57344.0, -14, 2, "inf"),
    "e4m3fnuz": SmallFloat(240.0, -7, 3, "fnuz"),
    "e5m2fnuz": SmallFloat(57344.0, -15, 2, "fnuz"),
}
OUT = ("f32", "f16", "bf16", "i32", "i8", "u8")

_NUMPY = {"i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64", "f32": "float32",
          "f64": "float64", "f16": "float16", "bool": "bool"}  # fmt: skip
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e4m3fnuz": "float8_e4m3fnuz",
              "e5m2fnuz": "float8_e5m2fnuz", "e8m0": "float8_e8m0fnu"}  # fmt: skip
# Sub-byte types of ml_dtypes, with one code per element: `onnx.numpy_helper.to_array` and JAX return them. Its int1 is
# missing: it has the values -1 and 0, which no dtype here has.
_SUB_BYTE = {"int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2", "uint1": "u1", "float4_e2m1fn": "e2m1"}


@cache
def _numpy(name: str) -> NumpyType:
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name in _ML_DTYPES:
        import ml_dtypes

        found: NumpyType = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        return found
    return np.dtype("uint8" if DTYPES[name].lo >= 0 else "int8")


@cache
def from_numpy(dtype: NumpyType) -> str:
    """The name in `DTYPES` of a numpy dtype. Raises KeyError if there is none."""
    plain: dict[NumpyType, str] = {np.dtype("int8"): "i8", np.dtype("uint8"): "u8"}
    plain |= {np.dtype(v): k for k, v in _NUMPY.items()}
    if dtype in plain:
        return plain[dtype]
    names = {v: k for k, v in _ML_DTYPES.items()} | _SUB_BYTE
    return names[dtype.name]


@cache
def _long_names() -> dict[str, str]:
    return {"int8": "i8", "uint8": "u8", **{v: k for k, v in (_NUMPY | _ML_DTYPES).items()}, **_SUB_BYTE}


def dtype_name(dtype: object) -> str:
    """The name of a dtype that is given as a numpy type (`np.int8`, `np.dtype("int8")`, `ml_dtypes.int4`), as a torch
    type (`torch.int8`), or by name (`"int8"` or `"i8"`). An unknown type keeps its own name, for callers to refuse."""
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        text = np.dtype(dtype).name
    else:
        text = str(dtype).removeprefix("torch.")
    return text if text in DTYPES else _long_names().get(text, text)


def is_sub_byte(dtype: NumpyType) -> bool:
    """Whether a numpy dtype is a sub-byte type of ml_dtypes, with one code per element."""
    return dtype.name in _SUB_BYTE


def stored_codes(array: Array) -> Array:
    """Convert an array of a sub-byte ml_dtypes type to codes in i8 or u8, one per element; others are unchanged."""
    if not is_sub_byte(array.dtype):
        return array
    name = _SUB_BYTE[array.dtype.name]
    return array.view(np.uint8) & np.uint8(15) if name == "e2m1" else array.astype(DTYPES[name].numpy)


def restored(array: Array, dtype: str) -> Array:
    """Restore the ml_dtypes type of an array that `np.load` read: files store only the element size of such a type
    (`|V1`). `dtype` is the expected type; an array that does not have its element size is unchanged."""
    if array.dtype.kind != "V" or array.dtype.name != f"void{8 * array.dtype.itemsize}":
        return array
    import ml_dtypes

    names = _ML_DTYPES | {v: k for k, v in _SUB_BYTE.items()}
    if dtype not in names or np.dtype(getattr(ml_dtypes, names[dtype])).itemsize != array.dtype.itemsize:
        return array
    return array.view(getattr(ml_dtypes, names[dtype]))


# fp4 e2m1 (OCP Microscaling Formats v1.0, section 5.3.3): sign, two exponent bits, one mantissa bit.
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
# NF4 (QLoRA, Dettmers et al. 2023, appendix E).
NF4_VALUES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def table(name: str, codebook: Array | None = None) -> Array:
    """The 16 f32 values of a table dtype; those of dtype `codebook` are the argument `codebook`."""
    if name == "e2m1":
        return np.array(E2M1_VALUES, np.float32)
    if name == "nf4":
        return np.array(NF4_VALUES, np.float32)
    assert codebook is not None
    return np.asarray(codebook, np.float32)
