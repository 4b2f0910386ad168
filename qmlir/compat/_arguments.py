"""Helpers of the package's modules: convert arguments to the form that `qmlir.ops` takes, and check them.

Activations keep their kind (numpy or torch), which decides the kind of the result. Parameters become numpy arrays;
reshaping, transposing and slicing are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..core.spelling import did_you_mean
from ..dialect.arrays import is_torch, to_numpy
from ..dialect.dtypes import Array
from ..dialect.shapes import show
from ..errors import UsageError
from ..ops.arguments import spec_of

if TYPE_CHECKING:
    import torch

# An argument or a result: a numpy array or a torch tensor.
ArrayLike: TypeAlias = "Array | torch.Tensor"
Number: TypeAlias = "ArrayLike | float"
FLOATS = ("f32", "f16", "bf16")


def dtype_of(value: ArrayLike, name: str) -> str:
    """qmlir's name of an array's dtype."""
    return spec_of(name, value).dtype


def operand(value: ArrayLike, name: str, rank: int | None = None) -> ArrayLike:
    """An operand as a numpy array or torch tensor, checked to have `rank` axes if that is given."""
    value = value if is_torch(value) else to_numpy(value, name)
    if rank is not None and len(value.shape) != rank:
        raise UsageError(f"{name!r} must have {rank} axes, but has shape {show(value.shape)}")
    return value


def rows(value: ArrayLike, name: str) -> tuple[ArrayLike, tuple[int, ...]]:
    """An activation `[.., K]` as `[M, K]`, and the sizes of its leading axes."""
    value = operand(value, name)
    lead = tuple(int(d) for d in value.shape[:-1])
    if not lead:
        raise UsageError(f"{name!r} must have at least two axes, but has shape {show(value.shape)}")
    return value.reshape(int(np.prod(lead)), int(value.shape[-1])), lead


def integers(value: ArrayLike, name: str, dtypes: Sequence[str] = ("i8", "u8")) -> Array:
    """Codes or bytes as a numpy array of one of `dtypes`."""
    array = to_numpy(value, name)
    found = dtype_of(array, name)
    if found not in dtypes:
        raise UsageError(f"{name!r} must be {' or '.join(dtypes)}, but is {found}")
    return array


def floats(value: Number, name: str) -> Array:
    """A float parameter (a scale, a bias). Python numbers and f64 arrays become f32, the type in the other systems."""
    array = to_numpy(value, name)
    if array.dtype == np.float64 or isinstance(value, (int, float)):
        return array.astype(np.float32)
    if dtype_of(array, name) not in FLOATS:
        raise UsageError(f"{name!r} must be float, but is {dtype_of(array, name)}")
    return array


def zero_points(value: Number, name: str) -> Array:
    """Integer zero points as i32."""
    array = to_numpy(value, name)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{name!r} must be integer, but is {dtype_of(array, name)}")
    return array.astype(np.int32)


def expect(array: ArrayLike, shape: Sequence[int], name: str, meaning: str) -> None:
    """Raise UsageError unless the shape is `shape`; `meaning` states it in symbols."""
    if tuple(array.shape) != tuple(shape):
        raise UsageError(f"{name!r} must have shape {meaning} = {show(shape)}, but has {show(array.shape)}")


def one_of(value: object, known: Iterable[str], name: str) -> str:
    known = tuple(known)
    if value not in known:
        raise UsageError(f"{name}={value!r} is not known{did_you_mean(str(value), known)}")
    return str(value)


def per_token(value: Array, tokens: int, name: str) -> Array:
    """One value per token as `[T, 1]`."""
    if value.size != tokens:
        raise UsageError(f"{name!r} must hold one value per token, [{tokens}], but has shape {show(value.shape)}")
    return value.reshape(tokens, 1)


def per_tensor(scale: Number, zero_point: Number, prefix: str) -> tuple[Array, Array]:
    """One scale and zero point, both `[]`."""
    pair = floats(scale, f"{prefix}_scale"), zero_points(zero_point, f"{prefix}_zero_point")
    for name, value in zip(("scale", "zero_point"), pair, strict=True):
        if value.size != 1:
            raise UsageError(f"'{prefix}_{name}' is one value, but has shape {show(value.shape)}")
    return pair[0].reshape(()), pair[1].reshape(())


def per_channel(value: ArrayLike, channels: int, name: str) -> Array:
    """The first `[N]` values of a parameter, which may be padded."""
    array = floats(value, name).reshape(-1)
    if array.size < channels:
        raise UsageError(f"{name!r} must hold one value per output channel, [{channels}], but holds {array.size}")
    return array[:channels]


def pair(value: Sequence[int], name: str) -> tuple[int, int]:
    """A size or a step along the axes of an image, `(h, w)`."""
    found = tuple(int(v) for v in value)
    if len(found) != 2:
        raise UsageError(f"{name} must be (h, w), but is {list(value)}")
    return found
