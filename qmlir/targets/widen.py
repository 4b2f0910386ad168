"""The IR of `widened`: the operands converted, the same contraction of them."""

from __future__ import annotations

from typing import Any

from .._mlir import arith, ir, linalg
from .tensors import barrier, elementwise, generic, multiply_add, type_of


def _converted(value: Any, t: Any, separate: bool) -> Any:
    """A tensor of small floats as one of the wider type `t`; each of its values is exact there."""
    if type_of(value).element_type == t:
        return value
    f32 = ir.F32Type.get()

    def body(x: Any) -> Any:
        wide = arith.extf(f32, x)
        return wide if t == f32 else arith.truncf(t, wide)

    converted = elementwise(value, t, body)
    return barrier(converted) if separate else converted


def widened(op: Any, dtype: str, separate: bool = False) -> Any:
    """The result of the matmul-like `op` on operands of `dtype`, which are in memory before it where `separate`."""
    t = ir.Type.parse(dtype)
    maps = [attribute.value for attribute in linalg.get_indexing_maps(op)]
    out = list(maps[2].results)
    dims = [ir.AffineDimExpr.get(d) for d in range(maps[0].n_dims)]
    kinds = ["parallel" if d in out else "reduction" for d in dims]
    operands = [_converted(value, t, separate) for value in list(op.operands)[:2]]
    return generic(operands, op.operands[2], maps, kinds, multiply_add)
