"""Finding operations, and the operations that make values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.mlir import collect as collect, ir, outside_kernels as outside_kernels

if TYPE_CHECKING:
    from ..core.mlir import OpLike

VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")  # the same elements in another type
BARRIERS = ("flow.tensor.tie_shape", "util.optimization_barrier")  # the ops that `barriers.fusion_barrier` makes


def operations_of(block: ir.Block) -> list[ir.Operation]:
    """The operations of a block, in order. The list is a snapshot: it does not change with the IR."""
    return [op.operation for op in block.operations]


def terminator_of(block: ir.Block) -> ir.Operation:
    """The last operation of a block, such as a `linalg.yield`."""
    return block.operations[len(block.operations) - 1].operation


def remove_unused(f: OpLike) -> None:
    """Remove operations of a function whose results have no uses: MLIR's own cleanup does not remove qmlir's ops."""
    for op in reversed(operations_of(f.regions[0].blocks[0])):
        if op.results and all(not list(r.uses) for r in op.results):
            op.erase()


def functions(module: ir.Module) -> list[OpLike]:
    """The module's `func.func` that have a body. The list is a snapshot: it does not change with the IR."""
    return [f for f in operations_of(module.body) if f.name == "func.func" and len(f.regions[0].blocks)]


def producer(value: ir.Value) -> ir.Operation | None:
    """The operation that makes a value; None for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def defining_op(value: ir.Value) -> ir.Operation:
    """The operation that makes a value.

    Raises:
        ValueError: the value is an argument of a block.
    """
    op = producer(value)
    if op is None:
        raise ValueError(f"an argument of a block is made by no operation: {value}")
    return op


def made_by(value: ir.Value, *names: str) -> OpLike | None:
    """The operation that makes a value, if its name is one of `names`; None otherwise."""
    op = producer(value)
    return op if op is not None and op.name in names else None


def argument_number(value: ir.Value, op: OpLike | None) -> int | None:
    """The number of a value among the arguments of an op's body; None for any other value."""
    inside = op is not None and isinstance(value.owner, ir.Block) and value.owner == op.regions[0].blocks[0]
    return ir.BlockArgument(value).arg_number if inside else None


def behind(value: ir.Value, *names: str) -> ir.Value:
    """The value behind a chain of operations called `names`, which is followed through their first operands."""
    while (op := made_by(value, *names)) is not None:
        value = op.operands[0]
    return value


def producer_name(value: ir.Value) -> str:
    """The name of the operation that makes a value; empty for an argument of a block."""
    op = producer(value)
    return "" if op is None else str(op.name)


def read_by(op: OpLike) -> list[ir.Value]:
    """The values that an op reads, also in its regions, without those that its regions define. A gather, for example,
    is a generic that reads a tensor in its body."""
    if not op.regions:
        return list(op.operands)
    inside = collect(op)
    own = {v for inner in inside for v in inner.results}
    own |= {v for inner in inside for region in inner.regions for block in region for v in block.arguments}
    return [v for inner in inside for v in inner.operands if v not in own]


def sources(values: Iterable[ir.Value], read: Callable[[OpLike], Iterable[ir.Value]] = read_by) -> Iterator[ir.Value]:
    """The values and all values that they are computed from, each once. `read`: the operands of an op to follow."""
    seen: set[ir.Value] = set()
    left = list(values)
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        yield value
        if (op := producer(value)) is not None:
            left += read(op)


@dataclass(frozen=True)
class StaticPadding:
    """A `tensor.pad` by static amounts: its source, the padding before and after each axis, and the fill value."""

    source: ir.Value
    low: list[int]
    high: list[int]
    fill: ir.Value


def static_padding(value: ir.Value) -> StaticPadding | None:
    """The padding that makes a value; None if another op makes it, or if the amounts are not static."""
    op = made_by(value, "tensor.pad")
    if op is None or len(op.operands) > 1:
        return None
    low, high = (list(op.attributes[f"static_{side}"]) for side in ("low", "high"))
    return StaticPadding(op.operands[0], low, high, terminator_of(op.regions[0].blocks[0]).operands[0])


def op_counts(module: ir.Module) -> dict[str, int]:
    """How often each op occurs in the functions' bodies, most frequent first; without constants and terminators."""
    counts: Counter[str] = Counter()
    for f in functions(module):
        counts.update(op.operation.name for block in f.regions[0].blocks for op in block.operations)
    skipped = ("arith.constant", "func.return", "util.global.load", "util.return")
    return dict(sorted(((n, c) for n, c in counts.items() if n not in skipped), key=lambda x: (-x[1], x[0])))
