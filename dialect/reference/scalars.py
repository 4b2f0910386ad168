"""`arith` and `math` ops in numpy, element by element, for tensors and for the scalars in the body of a structured op
(as arrays over the iteration space). Signless integers have signed numpy types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..dtypes import DTYPES, Array, NumpyType

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...core.mlir import OpLike, ir

_INTEGERS = {"i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "index": "int64"}
_FLOATS = {d.mlir: d for d in DTYPES.values() if d.kind == "float"}


def numpy_type(element: ir.Type) -> NumpyType | None:
    """The numpy type for elements of an MLIR type; None for unsupported types."""
    name = str(element)
    if name in _INTEGERS:
        return np.dtype(_INTEGERS[name])
    return _FLOATS[name].numpy if name in _FLOATS else None


def _unsigned(x: Array) -> Array:
    return x if x.dtype == bool else x.view(f"u{x.dtype.itemsize}")


def _signed(x: Array) -> Array:
    return x if x.dtype == bool else x.view(f"i{x.dtype.itemsize}")


def _on_unsigned(f: Callable[..., Array]) -> Callable[..., Array]:
    """Apply a function to operands reinterpreted as unsigned, and reinterpret its result as signed."""
    return lambda *xs: _signed(np.asarray(f(*(_unsigned(np.asarray(x)) for x in xs))))


def _divide(x: Array, y: Array) -> Array:
    """Divide, rounding toward zero; a division by zero is undefined and does not raise here."""
    with np.errstate(divide="ignore"):
        q = x // np.where(y == 0, 1, y)
        return np.asarray(np.where((q < 0) & (q * y != x), q + 1, q)).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    return np.asarray(x - _divide(x, y) * y).astype(x.dtype)


def _shift(f: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: np.asarray(np.where(_unsigned(y) < x.dtype.itemsize * 8, f(x, y), 0)).astype(x.dtype)


def _in_f64(f: Callable[..., ArrayLike]) -> Callable[..., Array]:
    """Evaluate a transcendental function in float64 and round once, as the dialect's reference does."""

    def apply(*xs: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(f(*(np.asarray(x).astype(np.float64) for x in xs))).astype(xs[0].dtype)

    return apply


def _fma(x: Array, y: Array, z: Array) -> Array:
    return (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(x.dtype)


_BINARY: dict[str, Callable[..., ArrayLike]] = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.divsi": _divide,
    "arith.remsi": _remainder, "arith.divui": _on_unsigned(_divide), "arith.remui": _on_unsigned(_remainder),
    "arith.floordivsi": lambda x, y: (x // np.where(y == 0, 1, y)).astype(x.dtype),
    "arith.ceildivsi": lambda x, y: (-((-x) // np.where(y == 0, 1, y))).astype(x.dtype),
    "arith.ceildivui": _on_unsigned(lambda x, y: _divide(x, y) + (_remainder(x, y) != 0)),
    "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
    "arith.shli": _shift(np.left_shift), "arith.shrsi": _shift(np.right_shift),
    "arith.shrui": _on_unsigned(_shift(np.right_shift)),
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.maxui": _on_unsigned(np.maximum),
    "arith.minui": _on_unsigned(np.minimum),
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.remf": np.fmod, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum, "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin, "arith.negf": np.negative, "arith.select": np.where,
    "math.absf": np.abs, "math.absi": np.abs, "math.roundeven": np.rint, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.trunc": np.trunc, "math.copysign": np.copysign, "math.fma": _fma, "math.isnan": np.isnan,
    "math.isinf": np.isinf, "math.isfinite": np.isfinite,
    "math.round": lambda x: (np.trunc(x) + np.copysign(np.abs(x - np.trunc(x)) >= 0.5, x)).astype(x.dtype),
    "math.exp": _in_f64(np.exp), "math.exp2": _in_f64(np.exp2), "math.expm1": _in_f64(np.expm1),
    "math.log": _in_f64(np.log), "math.log2": _in_f64(np.log2), "math.log1p": _in_f64(np.log1p),
    "math.log10": _in_f64(np.log10), "math.sqrt": _in_f64(np.sqrt), "math.rsqrt": _in_f64(lambda x: 1 / np.sqrt(x)),
    "math.cbrt": _in_f64(np.cbrt), "math.tanh": _in_f64(np.tanh), "math.sin": _in_f64(np.sin),
    "math.cos": _in_f64(np.cos), "math.tan": _in_f64(np.tan), "math.atan": _in_f64(np.arctan),
    "math.atan2": _in_f64(np.arctan2), "math.powf": _in_f64(np.power), "math.fpowi": _in_f64(np.power),
    "math.sinh": _in_f64(np.sinh),
    "math.cosh": _in_f64(np.cosh), "math.erf": _in_f64(np.vectorize(math.erf, otypes=[np.float64])),
}  # fmt: skip

_COMPARE_INTEGERS: tuple[Callable[..., ArrayLike], ...] = (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.less, np.less_equal, np.greater,
    np.greater_equal,
)  # fmt: skip
# Predicates 1 to 6 are ordered (false if an operand is NaN), 8 to 13 are the same predicates, unordered.
_COMPARE_FLOATS: tuple[Callable[..., ArrayLike], ...] = (
    np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal,
)  # fmt: skip


def _compare_floats(predicate: int, x: Array, y: Array) -> Array:
    unordered = np.isnan(x.astype(np.float64)) | np.isnan(y.astype(np.float64))
    if predicate in (0, 15):
        return np.full(np.broadcast_shapes(x.shape, y.shape), predicate == 15)
    if predicate == 7:
        return ~unordered
    if predicate == 14:
        return unordered
    if predicate < 7:
        return np.asarray(_COMPARE_FLOATS[predicate - 1](x, y)) & ~unordered
    return np.asarray(_COMPARE_FLOATS[predicate - 8](x, y)) | unordered


def _to_integer(x: Array, to: NumpyType) -> Array:
    """Truncate floats to integers. A value out of range is undefined; it saturates here as on most hardware."""
    info = np.iinfo(to)
    with np.errstate(invalid="ignore"):
        whole = np.nan_to_num(np.trunc(x.astype(np.float64)))
        return np.asarray(np.clip(whole, info.min, info.max)).astype(to)


def _convert(name: str, x: Array, to: NumpyType) -> Array:
    if name == "arith.bitcast":
        return np.ascontiguousarray(x).view(to) if x.ndim else x.reshape(1).view(to).reshape(())
    if name in ("arith.fptosi", "arith.fptoui"):
        if name == "arith.fptoui":
            return _signed(_to_integer(x, np.dtype(f"u{to.itemsize}")))
        return _to_integer(x, to)
    if name in ("arith.extui", "arith.uitofp", "arith.index_castui"):
        x = _unsigned(x)
    elif x.dtype == bool and name in ("arith.extsi", "arith.sitofp", "arith.index_cast"):
        x = -x.astype(np.int8)  # a set i1 is -1
    if name == "arith.trunci" and to.kind == "b":
        return (x & 1).astype(bool)
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(to)


_CONVERSIONS = ("arith.extsi", "arith.extui", "arith.extf", "arith.truncf", "arith.trunci", "arith.sitofp",
                "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.bitcast", "arith.index_cast",
                "arith.index_castui")  # fmt: skip
NAMES = frozenset({*_BINARY, *_CONVERSIONS, "arith.cmpi", "arith.cmpf"})


def evaluate(op: OpLike, operands: list[Array]) -> Array:
    """The result of an op of `NAMES`."""
    name = op.name
    with np.errstate(all="ignore"):
        if name == "arith.cmpi":
            predicate = int(op.attributes["predicate"].value)
            xs = [_unsigned(x) for x in operands] if predicate >= 6 else operands
            return np.asarray(_COMPARE_INTEGERS[predicate](*xs))
        if name == "arith.cmpf":
            return _compare_floats(int(op.attributes["predicate"].value), *operands)
        if name in _CONVERSIONS:
            t = op.results[0].type
            to = numpy_type(getattr(t, "element_type", t))
            assert to is not None
            return _convert(name, operands[0], to)
        return np.asarray(_BINARY[name](*operands))
