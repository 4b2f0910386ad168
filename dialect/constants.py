"""Reading MLIR constants back as numpy arrays, for the folding passes and for verifiers, which can prove more if a zero
point is constant."""

from __future__ import annotations

import numpy as np

from ..core.mlir import ir, raw_data
from .dtypes import DTYPES, Array

_FLOAT_BY_MLIR = {d.mlir: d.name for d in DTYPES.values() if d.kind == "float"}


def constant_array(value: ir.Value) -> Array | None:
    """The value of an `arith.constant` of tensor type; None for any other value. Integers are signed."""
    owner = value.owner
    operation = getattr(owner, "operation", None)
    if operation is None or operation.name != "arith.constant":
        return None
    return attribute_array(operation.attributes["value"])


def attribute_array(attribute: ir.Attribute) -> Array | None:
    """The value of a `DenseElementsAttr`; None for any other attribute (resources cannot be read back)."""
    if not isinstance(attribute, ir.DenseElementsAttr):
        return None
    t = ir.RankedTensorType(attribute.type)
    name = _FLOAT_BY_MLIR.get(str(t.element_type))
    if name in ("f32", "f16", "f64") or name is None:
        array = np.array(attribute)
    else:
        array = np.frombuffer(raw_data(attribute), DTYPES[name].numpy)
    if array.dtype == np.uint8:
        array = array.view(np.int8)
    return np.full(t.shape, array.flat[0]) if attribute.is_splat else array.reshape(t.shape)


def is_zero_fill(value: ir.Value) -> bool:
    """Whether a tensor is a `linalg.fill` with constant zero or a constant splat of zero."""
    if isinstance(value.owner, ir.Block):
        return False
    op = value.owner.operation
    if op.name == "linalg.fill":
        return is_zero_fill(op.operands[0])
    if op.name != "arith.constant":
        return False
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return False
        attribute = attribute.get_splat_value()
    return isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr)) and attribute.value == 0
