"""Resize to the nearest element by integer factors, which only repeats elements.

Source: ONNX, Resize, and onnxruntime's core/providers/cpu/tensor/upsamplebase.h, which computes positions in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....dialect.dtypes import Array
from ....ir import build
from ....spec import TensorSpec
from ...raising import Tensor
from ..node import Node


def repeats(op: Node, x: Tensor) -> tuple[int, ...] | None:
    """How often a Resize repeats the elements along each axis; None unless it takes nearest elements by constant
    integer factors."""
    a = op.attributes
    if a.get("mode", "nearest") != "nearest" or op.opset < 11:
        return None
    factors = _factors(op, x)
    if factors is None:
        return None
    for size, factor in zip(x.shape, factors, strict=True):
        if factor == 1:
            continue
        places = _places(a, size or 64, factor)
        if places is None or not (places == np.arange((size or 64) * factor) // factor).all():
            return None
    return factors


def nearest(op: Node, x: Tensor) -> Tensor:
    """The Resize of a node for which `repeats` is not None."""
    factors = repeats(op, x)
    assert factors is not None
    value = x.value
    for axis, factor in reversed(list(enumerate(factors))):
        value = build.repeat(value, axis, factor)
    shape = tuple(None if s is None else s * f for s, f in zip(x.shape, factors, strict=True))
    return Tensor(TensorSpec(shape, x.dtype), value)


def _factors(op: Node, x: Tensor) -> tuple[int, ...] | None:
    scales, sizes = op.optional(2), op.optional(3)
    axes = [int(i) % len(x.shape) for i in op.attributes.get("axes", range(len(x.shape)))]
    found = [1] * len(x.shape)
    if scales is not None and scales.shape != (0,):
        if scales.array is None:
            return None
        values = [float(s) for s in scales.array]
    elif sizes is not None and sizes.array is not None:
        if op.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        if any(not x.shape[i] for i in axes):
            return None
        values = [int(s) / (x.shape[i] or 1) for i, s in zip(axes, sizes.array, strict=True)]
    else:
        return None
    for axis, value in zip(axes, values, strict=True):
        if value < 1 or not value.is_integer():
            return None
        found[axis] = int(value)
    return tuple(found)


def _places(attributes: Mapping[str, Any], size: int, factor: int) -> Array | None:
    """The index of the source element for each position of the result; None for a mode that is not supported."""
    at, f = np.arange(size * factor, dtype=np.float32), np.float32(factor)
    how = attributes.get("coordinate_transformation_mode", "half_pixel")
    if how == "asymmetric":
        at = at / f
    elif how in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        at = (at + np.float32(0.5)) / f - np.float32(0.5)
    else:
        return None
    rounding = _ROUNDINGS.get(attributes.get("nearest_mode", "round_prefer_floor"))
    return None if rounding is None else np.clip(rounding(at), 0, size - 1).astype(np.int64)


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda p: np.ceil(p - np.float32(0.5)),
    "round_prefer_ceil": lambda p: np.floor(p + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}
