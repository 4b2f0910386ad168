"""Which arguments a call may pass to a program without a copy (zero-copy)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..ir.signature import public_functions
from ..ir.walk import operations_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Ops that name the axes of a tensor differently, or ask for a size.
_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast", "tensor.dim")


def zero_copy_arguments(module: ir.Module) -> dict[str, list[int]]:
    """For each public function of a program that is ready for IREE, the arguments that only built-in kernels read.

    A built-in kernel loads at any alignment, while IREE's own code assumes the alignment of its buffers. No result
    aliases such an argument.
    """
    found = {}
    for function in public_functions(module):
        blocks = function.regions[0].blocks
        live = _live(blocks)
        only_kernels = [i for i, argument in enumerate(blocks[0].arguments) if _read_by_kernels(argument, live)]
        if only_kernels:
            found[str(function.attributes["sym_name"].value)] = only_kernels
    return found


def _live(blocks: ir.BlockList) -> set[OpLike]:
    """The ops of a function, without the dead ops that remain of groups that kernels replaced: pure ops whose results
    no live op reads."""
    live: set[OpLike] = set()
    seen: set[OpLike] = set()
    for block in reversed(list(blocks)):
        for op in reversed(operations_of(block)):
            users = [_outermost(use.owner.operation) for result in op.results for use in result.uses]
            pure = op.name.startswith(("tensor.", "linalg.", "arith."))
            if not pure or any(user in live or user not in seen for user in users):
                live.add(op)
            seen.add(op)
    return live


def _outermost(op: OpLike) -> OpLike:
    """The op directly in a function's body that contains an op, or the op itself."""
    while op.parent.name != "func.func":
        op = op.parent.operation
    return op


def _read_by_kernels(value: ir.Value, live: set[OpLike]) -> bool:
    uses = [use.owner.operation for use in value.uses]
    uses = [op for op in uses if _outermost(op) in live]
    return isinstance(value.type, ir.RankedTensorType) and bool(uses) and all(_reads(op, live) for op in uses)


def _reads(op: OpLike, live: set[OpLike]) -> bool:
    if op.name == "flow.dispatch":
        return True  # a built-in kernel: IREE has not formed its own dispatches yet
    return op.name in _VIEWS and all(_is_size(r) or _read_by_kernels(r, live) for r in op.results)


def _is_size(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IndexType)
