"""Matches decodes of the form `(value[code] - zero) * scale`: the weight's values are a table, and the scale of a group
can be multiplied by the group's sum.

A decode is any scalar region. The part of it that depends on the code alone is evaluated here, for every code; the rest
must be the subtraction of an integer zero point, a conversion and a product, each at most once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.mlir import ir
from ..dialect.constants import constant_array
from ..dialect.dtypes import Array
from ..dialect.reference import scalars
from ..ir.walk import defining_op, producer, producer_name, terminator_of
from .bodies import scalar_constant
from .description import Previous, Stage

if TYPE_CHECKING:
    from ..core.mlir import OpLike


@dataclass(frozen=True)
class Scaled:
    """`(values[code & 255] - zero) * scale`. `zero` and `scale` are values of the decode's body that do not depend on
    the code; None if they are 0 and 1. With a zero, `values` are integers."""

    values: tuple[float, ...]
    zero: ir.Value | None
    scale: ir.Value | None


def scaled(decode: Stage, rounded_to: str = "") -> Scaled | None:
    """A decode in the form of `Scaled`, None if it has another form. `rounded_to`: a type to which the product may be
    rounded."""
    body = decode.body
    by_code = _of_code(body, next(i for i, s in enumerate(decode.sources) if isinstance(s, Previous)))
    *_, end = body.operations
    value, zero, scale = end.operation.operands[0], None, None
    if value not in by_code and producer_name(value) == "arith.truncf" and str(value.type) == rounded_to:
        value = defining_op(value).operands[0]
    if value not in by_code and producer_name(value) == "arith.mulf":
        a, b = defining_op(value).operands
        if _needs_code(a, by_code) == _needs_code(b, by_code):
            return None
        value, scale = (a, b) if _needs_code(a, by_code) else (b, a)
    if value not in by_code and producer_name(value) == "arith.sitofp":
        value = defining_op(value).operands[0]
        if value not in by_code and producer_name(value) == "arith.subi":
            value, zero = defining_op(value).operands
            if _needs_code(zero, by_code) or str(zero.type) != "i32":
                return None
    if value not in by_code or (zero is None and scale is not None and value.type != scale.type):
        return None
    table = np.broadcast_to(by_code[value], 256).astype(np.float64)
    if not np.isfinite(table).all():
        return None
    return Scaled(tuple(float(x) for x in table), zero, scale)


# The values of e2m1 codes without sign (OCP Microscaling Formats specification, section 5.3.3).
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decodes_e2m1(op: OpLike) -> bool:
    """Whether an elementwise op of one tensor decodes e2m1 codes, each in the low half of an i8."""
    if str(op.operands[0].type.element_type) != "i8":
        return False
    form = scaled(Stage(op.regions[0].blocks[0], (Previous(0),)))
    if form is None or form.zero is not None or form.scale is not None:
        return False
    wanted = np.array([*_E2M1, *(-x for x in _E2M1)])
    return all(np.array_equal(np.array(form.values[i : i + 16]), wanted) for i in range(0, 256, 16))


def _of_code(body: ir.Block, position: int) -> dict[ir.Value, Array]:
    """The values of a body that depend on the code alone, for all 256 codes in the order of their unsigned bits."""
    known: dict[ir.Value, Array] = {body.arguments[position]: np.arange(256, dtype=np.uint8).view(np.int8)}

    def lookup(value: ir.Value) -> Array | None:
        if value in known:
            return known[value]
        attribute = scalar_constant(value)
        if attribute is None:
            return None
        kind = scalars.numpy_type(attribute.type)
        return None if kind is None else np.asarray(attribute.value).astype(kind)

    for op in body.operations:
        operation = op.operation
        if operation.name == "tensor.extract" and len(operation.operands) == 2:
            table, at = constant_array(operation.operands[0]), lookup(operation.operands[1])
            if table is not None and at is not None and not (at.min() < 0 or at.max() >= len(table)):
                known[operation.results[0]] = table[at]
            continue
        operands = [lookup(value) for value in operation.operands]
        if operation.name in scalars.NAMES and not any(x is None for x in operands):
            known[operation.results[0]] = scalars.evaluate(operation, [x for x in operands if x is not None])
    return known


def _needs_code(value: ir.Value, by_code: dict[ir.Value, Array]) -> bool:
    if value in by_code:
        return True
    op = producer(value)
    return op is not None and any(_needs_code(operand, by_code) for operand in op.operands)


def constant_scalar(value: ir.Value) -> int | None:
    """The value of an integer that depends on constants alone, also through rank-0 tensors; None otherwise."""
    found = _constant(value)
    return None if found is None or found.dtype.kind not in "iu" else int(found.reshape(-1)[0])


def _constant(value: ir.Value) -> Array | None:
    attribute = scalar_constant(value)
    if attribute is not None:
        kind = scalars.numpy_type(attribute.type)
        return None if kind is None else np.asarray(attribute.value).astype(kind)
    operation = producer(value)
    if operation is None:
        argument = ir.BlockArgument(value)
        owner = argument.owner.owner
        if getattr(owner, "name", "") != "linalg.generic" or ir.RankedTensorType(owner.results[0].type).rank:
            return None
        return _constant_tensor(owner.operands[argument.arg_number])
    if operation.name == "tensor.extract" and len(operation.operands) == 1:
        return _constant_tensor(operation.operands[0])
    if operation.name not in scalars.NAMES:
        return None
    operands = [_constant(operand) for operand in operation.operands]
    return (
        None
        if any(x is None for x in operands)
        else scalars.evaluate(operation, [x for x in operands if x is not None])
    )


def _constant_tensor(value: ir.Value) -> Array | None:
    """The value of a constant tensor, or of a rank-0 generic of constants; None otherwise."""
    known = constant_array(value)
    if known is not None or producer_name(value) != "linalg.generic":
        return known
    body = defining_op(value).regions[0].blocks[0]
    return _constant(terminator_of(body).operands[0])
