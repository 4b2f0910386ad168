"""Conversion between numpy arrays and arrays of torch and other libraries."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from ..errors import InputError, UsageError
from .dtypes import DTYPES, Array, NumpyType, dtype_name

if TYPE_CHECKING:
    import torch

# torch types that numpy lacks: qmlir's dtype, and the integer type with the same number of bits.
_TORCH_RAW = {
    "torch.bfloat16": ("bf16", "int16"),
    "torch.float8_e4m3fn": ("e4m3", "uint8"),
    "torch.float8_e5m2": ("e5m2", "uint8"),
    "torch.float8_e4m3fnuz": ("e4m3fnuz", "uint8"),
    "torch.float8_e5m2fnuz": ("e5m2fnuz", "uint8"),
}


def is_torch(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a torch tensor; does not import torch."""
    kind: type = type(value)
    return _is_tensor(kind)


@cache
def _is_tensor(kind: type) -> bool:
    return any(c.__module__ == "torch" and c.__name__ == "Tensor" for c in kind.__mro__)


@cache
def _is_plain_tensor(kind: type) -> bool:
    return kind.__module__ == "torch" and kind.__name__ == "Tensor"


@cache
def _raw_of_torch(dtype: torch.dtype) -> tuple[str, str] | None:
    """The entry of `_TORCH_RAW`."""
    return _TORCH_RAW.get(str(dtype))


@cache
def _raw_of_numpy(dtype: NumpyType) -> tuple[str, str] | None:
    """torch's name of a type that numpy lacks, and the integer type with the same number of bits."""
    ours = dtype_name(dtype)
    for name, (known, integer) in _TORCH_RAW.items():
        if known == ours:
            return name.removeprefix("torch."), integer
    return None


def to_numpy(value: object, name: str) -> Array:
    """Convert an argument to a numpy array. Raises InputError if it is not an array."""
    if is_torch(value):
        kind: type = type(value)
        raw = _raw_of_torch(value.dtype)
        if raw is None and not value.requires_grad and _is_plain_tensor(kind):
            try:
                plain: Array = value.numpy()
                return plain
            except (RuntimeError, TypeError):
                pass  # on another device, without memory, or with a type or flag that numpy does not have
        try:
            # A tensor may be a lazy negation or conjugate of its memory, which `numpy` refuses.
            t = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
        except (RuntimeError, NotImplementedError) as e:
            raise InputError(f"argument {name!r} is a torch tensor without plain memory: {_first_line(e)}") from None
        if raw is not None:
            import torch

            dtype, signed = raw
            return np.asarray(t.view(getattr(torch, signed)).numpy()).view(DTYPES[dtype].numpy)
        try:
            return np.asarray(t.numpy())
        except (RuntimeError, TypeError) as e:
            raise InputError(
                f"argument {name!r} is a torch tensor that cannot be converted to an array: {_first_line(e)}"
            ) from None
    if isinstance(value, (np.ndarray, np.generic, int, float)):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError):
            pass  # a type that DLPack, or numpy's import of it, does not support, such as JAX's int4
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):
        found = None
    if found is None or found.dtype == object:
        raise InputError(f"argument {name!r} is a {type(value).__name__}, which is not an array")
    return found


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]


def numpy_type(dtype: torch.dtype) -> NumpyType | None:
    """The numpy type with the same values as a torch type; None if numpy has none."""
    raw = _raw_of_torch(dtype)
    if raw is not None:
        return DTYPES[raw[0]].numpy
    try:
        return np.dtype(str(dtype).removeprefix("torch."))
    except TypeError:
        return None


def torch_type(dtype: NumpyType) -> torch.dtype | None:
    """The torch type with the same values as a numpy type; None if torch has none."""
    import torch

    raw = _raw_of_numpy(dtype)
    found = getattr(torch, dtype.name if raw is None else raw[0], None)
    return found if isinstance(found, torch.dtype) else None


def to_torch(array: Array) -> torch.Tensor:
    """A torch tensor with the memory of an array."""
    import torch

    raw = _raw_of_numpy(array.dtype)
    if raw is None:
        return torch.from_numpy(array)
    torch_name, integer = raw
    return torch.from_numpy(array.view(integer)).view(getattr(torch, torch_name))


def scalar_array(name: str, value: np.generic | float) -> Array:
    """Convert a scalar argument to an array: integer zero points to i32, other Python numbers to f32.

    Raises:
        UsageError: if a zero point does not fit i32.
    """
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not name.endswith("zero_point") or isinstance(value, float):
        return np.asarray(value, np.float32)
    if not -(2**31) <= value < 2**31:
        raise UsageError(f"{name}={value!r} does not fit i32")
    return np.asarray(value, np.int32)
