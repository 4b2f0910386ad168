"""Constants whose elements are only moved (transposed, reshaped, padded), computed with numpy. IREE would compile such
ops for the host and run them during compilation, which takes a tenth of a second for each shape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.mlir import OpLike, ir
from ..dialect.constants import attribute_array
from ..dialect.dtypes import Array
from .resources import resource_array
from .walk import producer, static_padding


def moved_constant(value: ir.Value) -> Array | None:
    """The elements of a constant, or of the result of such ops on one; None if other ops are involved."""
    op = producer(value)
    rule = None if op is None else _RULES.get(op.name)
    return None if op is None or rule is None else rule(op)


def _constant(op: OpLike) -> Array | None:
    found = resource_array(op.attributes["value"])
    return attribute_array(op.attributes["value"]) if found is None else found


def _transposed(op: OpLike) -> Array | None:
    source = moved_constant(op.operands[0])
    return None if source is None else source.transpose(list(op.attributes["permutation"]))


def _regrouped(op: OpLike) -> Array | None:
    kind, source = ir.RankedTensorType(op.results[0].type), moved_constant(op.operands[0])
    return None if source is None or not kind.has_static_shape else source.reshape(kind.shape)


def _padded(op: OpLike) -> Array | None:
    padding, source = static_padding(op.results[0]), moved_constant(op.operands[0])
    fill = None if padding is None else producer(padding.fill)
    if padding is None or source is None or fill is None or fill.name != "arith.constant":
        return None
    amounts = list(zip(padding.low, padding.high, strict=True))
    return np.pad(source, amounts, constant_values=np.asarray(fill.attributes["value"].value).astype(source.dtype))


_RULES: dict[str, Callable[[OpLike], Array | None]] = {
    "arith.constant": _constant,
    "flow.tensor.constant": _constant,
    "linalg.transpose": _transposed,
    "tensor.collapse_shape": _regrouped,
    "tensor.expand_shape": _regrouped,
    "tensor.pad": _padded,
}
