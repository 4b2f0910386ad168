"""A constant weight: its codes as an array, and the bytes that a kernel stores as a constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import numpy as np

from ..core.mlir import arith, ir
from ..dialect.constants import constant_array
from ..dialect.dtypes import Array
from ..ir.build import dense
from ..ir.resources import resource
from ..ir.walk import behind
from .description import Kernel


def known(value: ir.Value) -> Array | None:
    """The array of a constant, also behind reshapes; None for any other value."""
    array = constant_array(behind(value, "tensor.expand_shape", "tensor.collapse_shape"))
    return None if array is None else array.reshape(ir.RankedTensorType(value.type).shape)


def constant_codes(kernel: Kernel) -> Array | None:
    """The codes of a constant weight as `[N, K]` (`[matrices, N, K]` of a batch), None if it is not constant."""
    remembered = _codes.get()
    if remembered is None:
        return _codes_of(kernel)
    key = (kernel.rhs.value, kernel.rhs.flipped, kernel.rhs.source_axes)
    if key not in remembered:
        remembered[key] = _codes_of(kernel)
    return remembered[key]


# By the weight, whether its top bits are inverted, and its axes.
_Key: TypeAlias = "tuple[ir.Value, bool, tuple[str, ...]]"
_codes: ContextVar[dict[_Key, Array | None] | None] = ContextVar("_codes", default=None)


@contextmanager
def codes_read_once() -> Iterator[None]:
    """A context in which `constant_codes` copies each weight from the program only once."""
    token = _codes.set({})
    try:
        yield
    finally:
        _codes.reset(token)


def _codes_of(kernel: Kernel) -> Array | None:
    array = known(kernel.rhs.value)
    if array is None:
        return None
    if kernel.rhs.flipped:
        array = (array.view(np.uint8) ^ 0x80).view(np.int8)
    axes = kernel.rhs.source_axes
    order = sorted(range(array.ndim), key=lambda i: ("b", "n", "g", "k").index(axes[i]))
    matrices = [] if kernel.batch is None else [-1]
    return np.ascontiguousarray(array.transpose(order)).reshape(*matrices, kernel.n, kernel.k)


# The number of terms whose sum fits i32, each the product of an i8 and a code at the top of its byte: up to 128 * 128.
_MAX_TERMS = (2**31 - 1) // 128**2


def fits_top_of_byte(kernel: Kernel) -> bool:
    """Whether short codes may be multiplied as `code << (8 - bits)`, at the top of their byte, and each i32 sum shifted
    back: a sum over K, or over a group, must not wrap. Always true of a decoded weight, whose multiplied values are not
    codes."""
    return kernel.rhs.decode is not None or (kernel.group or kernel.k) <= _MAX_TERMS


_LARGE = 1 << 18  # bytes


def constant_bytes(array: Array) -> ir.Value:
    """An array of bytes as a constant at the insertion point."""
    return stored_constant(array, ir.RankedTensorType.get(array.shape, ir.IntegerType.get_signless(8)))


def stored_constant(array: Array, kind: ir.RankedTensorType) -> ir.Value:
    """An array as a constant of a type at the insertion point."""
    if array.nbytes < _LARGE:
        return dense(array, str(kind.element_type) if isinstance(kind.element_type, ir.FloatType) else None)
    # As a resource: for 40 MiB of a dense attribute, which is compared by its elements, IREE 3.13 takes a second.
    return arith.constant(kind, resource(array, kind))
