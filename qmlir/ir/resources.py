"""Large constants: `dense_resource` attributes, which the bindings make of an array and cannot read back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from ..core.faults import Fault
from ..core.mlir import ir
from ..dialect.dtypes import Array

FAULTS = (
    Fault(
        "IREE computes with the bits of bf16 and of floats of one byte in some dispatches, and rewrites small "
        "constants for that, but not resources (`failed to legalize operation 'arith.constant'`): the torch front end "
        "makes no resources of those.",
        canary="resource_of_bf16",
    ),
)

_NAME = re.compile(r'dense_resource<("[^"]+"|[^>]+)>')


@dataclass
class _Kept:
    """The known resources of one context: the arrays by the attributes' names, and the attributes by a digest of their
    bytes and their type."""

    context: ir.Context
    arrays: dict[str, Array] = field(default_factory=dict)
    attributes: dict[tuple[bytes, ir.Type], ir.Attribute] = field(default_factory=dict)


_kept: ContextVar[_Kept | None] = ContextVar("_kept", default=None)


@contextmanager
def kept_resources() -> Iterator[None]:
    """Inside, `resource_array` knows the arrays of the current context's resources, and equal arrays share one."""
    context, outer = ir.Context.current, _kept.get()
    if outer is not None and outer.context is context:
        yield
        return
    token = _kept.set(_Kept(context))
    try:
        yield
    finally:
        _kept.reset(token)


def resource(array: Array, kind: ir.RankedTensorType) -> ir.Attribute:
    """The bytes of an array as a resource of the type `kind`."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    digest, kept = hashlib.sha256(raw.data).digest(), _kept.get()
    found = None if kept is None else kept.attributes.get((digest, kind))
    if found is None:
        found = ir.DenseResourceElementsAttr.get_from_buffer(raw.data, f"qmlir_{digest.hex()[:16]}", kind, 64, False)
        keep_array(found, array)
        if kept is not None:
            kept.attributes[digest, kind] = found
    return found


def keep_array(attribute: ir.Attribute, array: Array) -> None:
    """Remember the array that a resource was made of, inside `kept_resources`."""
    kept, name = _kept.get(), resource_name(attribute)
    if kept is not None and name is not None:
        kept.arrays[name] = array


def resource_array(attribute: ir.Attribute) -> Array | None:
    """The array that a resource was made of; None if it was not remembered, and for other attributes."""
    kept = _kept.get()
    return None if kept is None else kept.arrays.get(resource_name(attribute) or "")


def resource_name(attribute: ir.Attribute) -> str | None:
    """The name of a resource; None for other attributes. It is found in the text, because an attribute that is read
    from an op has lost its class. Other elements are excluded first, because their text may be long."""
    named = None if isinstance(attribute, ir.DenseElementsAttr) else _NAME.match(str(attribute))
    return None if named is None else named[1]
