"""Arguments of operations: arrays and dtypes in the forms that callers pass, and the choices that they imply."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from ..dialect.arrays import is_torch, scalar_array, to_numpy
from ..dialect.dtypes import CODES, Array, dtype_name, from_numpy
from ..dialect.ods import Attributes, Keywords, Op
from ..dialect.ops.common import with_bounds
from ..errors import UsageError
from ..spec import TensorSpec

if TYPE_CHECKING:
    import torch

Specs = dict[str, TensorSpec]


_STORABLE = ("i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "e2m1", "nf4", "codebook", "e4m3", "e5m2", "e4m3fnuz",
             "e5m2fnuz")  # fmt: skip


_BELOW_A_BYTE = CODES[2:9]


def _check_stated(name: str, d: str, attribute: str, packing: str, attributes: Attributes) -> None:
    """Refuse attributes that contradict an array of sub-byte codes, whose dtype states that they are not packed."""
    if d not in _BELOW_A_BYTE:
        return
    if attributes.get(attribute, d) != d:
        raise UsageError(f"{attribute}={attributes[attribute]!r}, but {name!r} holds {d} codes, one per element")
    if attributes.get(packing, "none") != "none":
        raise UsageError(
            f"{packing}={attributes[packing]!r} reads bytes, but {name!r} holds {d} codes, one per element; leave "
            f"{packing} out, or give bytes (u8)"
        )


def array(name: str, value: object) -> Array:
    if isinstance(value, (int, float, np.generic)):
        return scalar_array(name, value)
    if isinstance(value, np.ndarray):
        return value
    return to_numpy(value, name)


def has_shape(value: object) -> TypeGuard[Array | torch.Tensor]:
    """Whether a value is an array, of numpy, torch or another library."""
    return hasattr(value, "shape") and not isinstance(value, (int, float, np.generic))


def plain(value: object) -> object:
    """The value of an attribute, with arrays and lists as tuples, because it is part of a program's key."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


_TORCH = ("f32", "f16", "bf16", "i8", "u8", "i32", "i64", "e4m3", "e5m2", "f64")


def spec_of(name: str, value: object) -> TensorSpec:
    """Shape and dtype of an array-like."""
    if isinstance(value, TensorSpec):
        return value
    if is_torch(value):
        if dtype_name(value.dtype) not in _TORCH:
            raise UsageError(f"argument {name!r} has the unsupported dtype {value.dtype}")
        return TensorSpec(tuple(value.shape), value.dtype)
    found = array(name, value)
    try:
        return TensorSpec(found.shape, from_numpy(found.dtype))
    except KeyError:
        raise UsageError(f"argument {name!r} has the unsupported dtype {found.dtype}") from None


def normalized(definition: type[Op], specs: Specs, attributes: Attributes) -> Keywords:
    """The attributes with implicit choices made explicit: dtypes from arrays, zero point modes, the bias's stage."""
    out = {k: v for k, v in attributes.items() if v is not None}
    if "activation" in out:
        try:
            out = with_bounds(out)
        except ValueError as e:
            raise UsageError(str(e)) from None
    if definition.SIDES:
        out.setdefault("out_dtype", definition.DEFAULTS["out_dtype"])
    for side in definition.SIDES:
        d = specs[side.operand].dtype
        _check_stated(side.operand, d, side.dtype, side.packing, out)
        packed = out.get(side.packing, "none") != "none"
        if side.dtype not in out and not (d == "u8" and packed):
            out[side.dtype] = d
        if side.mode not in out and any(z in specs for z in side.zero_points):
            out[side.mode] = "int"
        if side.dtype not in out:
            raise UsageError(f"packed {side.operand!r} needs {side.dtype}, such as {side.dtype}='i4'")
        if out[side.dtype] not in (*_STORABLE, "f32", "f16", "bf16"):
            raise UsageError(
                f"{side.operand!r} is {out[side.dtype]}, which {definition.FUNCTION} does not take; use i8 or u8 "
                "codes, or floats"
            )
    if "bias" in specs and "bias_stage" not in out:
        out["bias_stage"] = "acc" if specs["bias"].dtype == "i32" else "scaled"
    return out


def check_zero_points(definition: type[Op], specs: Specs, attributes: Attributes) -> None:
    """Refuse an 8-bit zero point of the other signedness than its codes, because a program would read it with theirs.
    Codes with an offset mode are signed once the offset is subtracted."""
    result = attributes.get("out_dtype", definition.DEFAULTS.get("out_dtype"))
    pairs = []
    for side in definition.SIDES:
        codes = "i8" if str(attributes.get(side.mode)).startswith("offset") else attributes.get(side.dtype)
        pairs += [(z, codes) for z in side.zero_points]
    pairs.append(("intermediate_zero_point", attributes.get("intermediate_dtype")))
    pairs += [("out_zero_point", result)] if definition.SIDES else [("zero_point", result)]
    for name, codes in pairs:
        own = specs[name].dtype if name in specs else None
        if {own, codes} == {"i8", "u8"}:
            raise UsageError(f"{name!r} is {own}, but its codes are {codes}: give it as {codes} or i32")
