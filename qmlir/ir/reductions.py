"""Reductions by the bodies of structured ops, and the same ops with accumulators of another type, called keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ..core.mlir import ir, linalg
from .affine import indexing_maps, loop_sizes
from .attributes import iterator_types
from .build import dims, filled, mapped
from .walk import defining_op, made_by, producer, terminator_of

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Ops that combine two numbers; more may be combined in any order.
INTEGERS = frozenset(
    f"arith.{name}" for name in ("addi", "muli", "minsi", "maxsi", "minui", "maxui", "andi", "ori", "xori")
)
FLOATS = frozenset(f"arith.{name}" for name in ("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf"))
COMBINATIONS = INTEGERS | FLOATS


@dataclass(frozen=True)
class Reduced:
    """A result of a structured op that only combines the values that its body computes of each element."""

    position: int
    combined: OpLike
    """The op that combines an element with the accumulator, such as `arith.maximumf`."""
    element: ir.Value
    result: ir.Value


@dataclass(frozen=True)
class Keys:
    """Keys, which a reduction accumulates instead of numbers: their type, the key of a number, the combination of two
    keys, and the number of a key."""

    type: ir.Type
    key: Callable[[ir.Value], ir.Value]
    combine: Callable[[ir.Value, ir.Value], ir.Value]
    number: Callable[[ir.Value], ir.Value]


def reduced(op: OpLike, combinations: Collection[str]) -> list[Reduced]:
    """The results of a structured op that are reduced by one of `combinations` along its loops."""
    if not op.name.startswith("linalg.") or len(op.regions) != 1:
        return []
    block = op.regions[0].blocks[0]
    count = len(op.results)
    if not count or len(block.arguments) < count or not _has_reduced_loops(op):
        return []
    found = []
    for i, value in enumerate(terminator_of(block).operands):
        running = block.arguments[len(block.arguments) - count + i]
        combined = producer(value)
        if combined is None or combined.name not in combinations or running not in list(combined.operands):
            continue
        if len(list(running.uses)) != 1 or len(list(value.uses)) != 1:
            continue  # something else reads the accumulator or its new value
        a, b = combined.operands
        found.append(Reduced(i, combined, a if b == running else b, op.results[i]))
    return found


def within_lanes(op: OpLike, lanes: int = 32) -> bool:
    """Whether a structured op reduces fewer elements per result than the smallest subgroup has lanes: IREE does not
    reduce those across lanes."""
    maps = indexing_maps(op)
    sizes, written = loop_sizes(op.operands, maps), _written(maps[-1])
    reduced_loops = [loop for loop in range(maps[0].n_dims) if loop not in written]
    return all(loop in sizes for loop in reduced_loops) and prod(sizes[loop] for loop in reduced_loops) < lanes


def reduces(op: OpLike, combinations: Collection[str]) -> bool:
    """Whether an op only combines an element with the accumulator of the structured op around it."""
    owner = op.operation.block.owner
    if owner is None:
        return False
    return any(r.combined == op.operation for r in reduced(owner.operation, combinations))


def reduce_keys(op: OpLike, reductions: Sequence[tuple[Reduced, Keys]]) -> None:
    """Replace the op by one that accumulates keys for `reductions`, and convert the results back to numbers."""
    count = len(op.results)
    inits = list(op.operands)[-count:]
    for one, keys in reductions:
        inits[one.position] = _keys_of(inits[one.position], keys)
    block = op.regions[0].blocks[0]
    for one, keys in reductions:
        with ir.InsertionPoint(one.combined):
            key = keys.key(one.element)
            running = block.arguments[len(block.arguments) - count + one.position]
            running.set_type(key.type)
            kept = keys.combine(key, running)
        one.combined.results[0].replace_all_uses_with(kept)
        one.combined.erase()
    new = with_operands(op, [*list(op.operands)[:-count], *inits])
    numbers = {one.position: keys.number for one, keys in reductions}
    for i, (old, result) in enumerate(zip(op.results, new.results, strict=True)):
        old.replace_all_uses_with(mapped(result, old.type.element_type, numbers[i]) if i in numbers else result)
    op.erase()


def with_operands(op: OpLike, operands: Sequence[ir.Value]) -> OpLike:
    """A `linalg.generic` on other operands with the loops and the body of `op`. The body is moved; its arguments must
    already have the element types of the new operands."""
    maps = indexing_maps(op)
    written = _written(maps[-1])
    kinds = ["parallel" if i in written else "reduction" for i in range(maps[0].n_dims)]
    iterators = op.attributes["iterator_types"] if op.name == "linalg.generic" else iterator_types(kinds)
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    count = len(op.results)
    inits = list(operands)[-count:]
    new = linalg.GenericOp([v.type for v in inits], list(operands)[:-count], inits, attributes, iterators)
    if op.name == "linalg.generic":
        for name in op.attributes:
            if name not in ("indexing_maps", "iterator_types", "operandSegmentSizes"):
                new.operation.attributes[name] = op.attributes[name]
    op.regions[0].blocks[0].append_to(new.regions[0])
    made: OpLike = new.operation
    return made


def _has_reduced_loops(op: OpLike) -> bool:
    return linalg.get_indexing_maps(op) is not None and len(_written(last := indexing_maps(op)[-1])) < last.n_dims


def _written(m: ir.AffineMap) -> set[int]:
    """The loops that index the axes of a result."""
    return {e.position for e in m.results if isinstance(e, ir.AffineDimExpr)}


def _keys_of(init: ir.Value, keys: Keys) -> ir.Value:
    """The key of each element of a reduction's initial value."""
    if made_by(init, "linalg.fill") is not None:
        return filled(dims(init), keys.key(defining_op(init).operands[0]))
    return mapped(init, keys.type, keys.key)
