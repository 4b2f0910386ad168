"""Which arguments a call may lend to a program instead of copying them."""

from __future__ import annotations

from typing import Any

from .._mlir import ir

# Ops that name the axes of a tensor differently, or ask for a size.
_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.dim")


def borrowed(module: Any) -> dict[str, list[int]]:
    """For each public function of a program that is ready for IREE, the arguments that kernels of ours read and nothing
    else does.

    A kernel loads at any alignment, where code of IREE's own takes that of its buffers for granted; and no result is
    the memory of such an argument.
    """
    from ..signature import public_functions

    found = {}
    for function in public_functions(module):
        arguments = function.regions[0].blocks[0].arguments
        lent = [i for i, argument in enumerate(arguments) if _read_by_kernels(argument)]
        if lent:
            found[str(function.attributes["sym_name"].value)] = lent
    return found


def _read_by_kernels(value: Any) -> bool:
    uses = [use.owner.operation for use in value.uses]
    uses = [op for op in uses if not _is_dead(op)]
    return isinstance(value.type, ir.RankedTensorType) and bool(uses) and all(_reads(op) for op in uses)


def _reads(op: Any) -> bool:
    if op.name == "flow.dispatch":
        return True  # IREE has made none of its own yet
    return op.name in _VIEWS and all(_is_size(r) or _read_by_kernels(r) for r in op.results)


def _is_size(value: Any) -> bool:
    return isinstance(value.type, ir.IndexType)


def _is_dead(op: Any) -> bool:
    """What kernels leave behind of the group that they take the place of."""
    if op.name == "linalg.yield":  # of a body that reads a tensor by an index
        return _is_dead(op.parent.operation)
    pure = op.name.startswith(("tensor.", "linalg.", "arith."))
    return pure and not any(_uses(result) for result in op.results)


def _uses(value: Any) -> bool:
    return any(not _is_dead(use.owner.operation) for use in value.uses)
