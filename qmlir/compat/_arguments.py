"""What the modules of this package share: arguments brought to the form that `qmlir.ops` takes, and refusals.

Activations keep their kind (numpy or torch), which decides the kind of the result. Parameters become numpy arrays;
reshaping, transposing and slicing are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..core.spelling import did_you_mean
from ..dialect.arrays import to_numpy
from ..dialect.dtypes import Array, from_numpy
from ..dialect.shapes import show
from ..errors import UsageError
from ..ops import _spec_of

FLOATS = ("f32", "f16", "bf16")


def dtype_of(value: Any, name: str) -> str:
    """Our name of an array's dtype."""
    return _spec_of(name, value).dtype


def operand(value: Any, name: str, rank: int | None = None) -> Any:
    """An operand as it is (numpy or torch), of `rank` axes when stated."""
    value = value if type(value).__module__ == "torch" else to_numpy(value, name)
    if rank is not None and len(value.shape) != rank:
        raise UsageError(f"{name!r} must have {rank} axes, but has shape {show(value.shape)}")
    return value


def rows(value: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """An activation `[.., K]` as `[M, K]`, and its leading axes."""
    value = operand(value, name)
    lead = tuple(int(d) for d in value.shape[:-1])
    if not lead:
        raise UsageError(f"{name!r} must have at least two axes, but has shape {show(value.shape)}")
    return value.reshape(int(np.prod(lead)), int(value.shape[-1])), lead


def integers(value: Any, name: str, dtypes: Sequence[str] = ("i8", "u8")) -> Array:
    """Codes or bytes as a numpy array of one of `dtypes`."""
    array = to_numpy(value, name)
    found = dtype_of(array, name)
    if found not in dtypes:
        raise UsageError(f"{name!r} must be {' or '.join(dtypes)}, but is {found}")
    return array


def floats(value: Any, name: str) -> Array:
    """A float parameter (a scale, a bias). Python numbers and f64 arrays become f32, which is what the systems hold."""
    array = to_numpy(value, name)
    if array.dtype == np.float64 or isinstance(value, (int, float)):
        return array.astype(np.float32)
    if dtype_of(array, name) not in FLOATS:
        raise UsageError(f"{name!r} must be float, but is {dtype_of(array, name)}")
    return array


def zero_points(value: Any, name: str) -> Array:
    """Integer zero points as i32."""
    array = to_numpy(value, name)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{name!r} must be integer, but is {dtype_of(array, name)}")
    return array.astype(np.int32)


def expect(array: Any, shape: Sequence[int], name: str, meaning: str) -> None:
    """The shape is the documented one; `meaning` spells it in symbols."""
    if tuple(array.shape) != tuple(shape):
        raise UsageError(f"{name!r} must have shape {meaning} = {show(shape)}, but has {show(array.shape)}")


def one_of(value: Any, known: Iterable[str], name: str) -> str:
    known = tuple(known)
    if value not in known:
        raise UsageError(f"{name}={value!r} is not known{did_you_mean(str(value), known)}")
    return str(value)


def dtype_name(value: Any, name: str, known: Sequence[str]) -> str:
    """A dtype given as numpy's, torch's, or a string of theirs or ours, by our name."""
    text = str(value).removeprefix("torch.")
    if text not in known:
        try:
            text = from_numpy(np.dtype(value))
        except (TypeError, KeyError):
            text = "bf16" if "bfloat16" in text else _BY_TEXT.get(text, text)
    if text not in known:
        raise UsageError(f"{name}={value!r} is not known{did_you_mean(text, known)}")
    return text


_BY_TEXT = {"float32": "f32", "float16": "f16", "int8": "i8", "uint8": "u8", "int32": "i32"}
