"""Affine maps and their expressions."""

from __future__ import annotations

from typing import Any

from ..core.mlir import ir, linalg


def indexing_maps(op: Any) -> list[Any]:
    """The maps of a linalg op, one for each operand."""
    return [attribute.value for attribute in linalg.get_indexing_maps(op)]


def downcast(e: Any) -> Any:
    """An affine expression as what it is; some versions of the bindings give the base class."""
    return e.maybe_downcast() if hasattr(e, "maybe_downcast") else e


def loops_of(e: Any) -> list[int]:
    """The loops that an expression follows."""
    e = downcast(e)
    if isinstance(e, ir.AffineDimExpr):
        return [e.position]
    return [] if isinstance(e, ir.AffineConstantExpr) else [*loops_of(e.lhs), *loops_of(e.rhs)]
