"""Facts: what a pass knew about an op when it made it, stored as discardable attributes of the op.

A fact is an attribute `qmlir.<name>`. It states what the body of a `linalg.generic` computes, so that the analysis of
kernels need not find it again. Ops without facts, which no pass of this project made, are analysed by their bodies
(`kernels/computes.py`), and become the same kernels.

A fact holds for the body that it was written for. `note` also writes a fingerprint of the body (`qmlir.noted`), and
`known` returns no fact of an op whose fingerprint differs: if a pass that does not know about facts changes a body, the
fact is lost, but the result stays right. What the body does not contain (that a sum starts at zero, which tensors are
read) is not part of a fact: a reader of the fact looks at the op for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import ir
from .affine import downcast, indexing_maps
from .walk import behind, made_by

if TYPE_CHECKING:
    from ..core.mlir import OpLike

FactValue: TypeAlias = "int | str | tuple[int, ...]"

# Facts about what a body computes. `PRESENT` is the value of a fact that needs none.
PRESENT = 1
ROW_SUMS = "qmlir.row_sums"  # sums of signed codes along the last axis, added to the initial value
GATHER = "qmlir.gather"  # rows of the tensor that the body reads, at the indices in the operand
REPEATS = "qmlir.repeats"  # each element of the operand, repeated along a new axis: (axis, times)
CLAMPS = "qmlir.clamps"  # the operand, clamped to `[lo, hi]`
SIGNED_CODES = "qmlir.signed_codes"  # u8 codes minus 128, as i8
WIDENS = "qmlir.widens"  # the operand, extended to a longer float type
DECODES = "qmlir.decodes"  # the values of codes of the named type, in the type of the result
SCALES_GROUPS = "qmlir.scales_groups"  # `sum + part * (scale * scale)` over groups, and nothing else
WITHIN = "qmlir.within"  # every element is in `[lo, hi]`

# Tables for rows in blocks (passes/core/lower/blocks.py), and the ops that move rows into blocks and back.
ENDED_BLOCKS = "qmlir.ended_blocks"  # how many matrices' blocks end before each block; its value: rows per block
BLOCK_OF = "qmlir.block_of"  # the block of each row; its value: whether rows are sorted by group
SLOT_OF = "qmlir.slot_of"  # the place of each row in its block
BACK = "qmlir.back"  # each row, read from its block and slot, which two tables give

# Marks that say nothing about a body, and need no fingerprint.
ROW_OF = "qmlir.row_of"  # the row in each slot of the blocks
ROUTES = "qmlir.routes"  # the dispatch that makes all tables; its last result is the row in each slot, or -1
ROWS = "qmlir.rows"  # an op of a dynamic quantisation, for `qmlir-fuse-rows`
MAGNITUDES = LHS_MAGNITUDE, RHS_MAGNITUDE = "qmlir.lhs_magnitude", "qmlir.rhs_magnitude"  # the largest |code|

_MARKS = (ROW_OF, ROUTES, ROWS, *MAGNITUDES)
_NOTED = "qmlir.noted"


def note(op: OpLike, facts: Mapping[str, FactValue]) -> None:
    """Write facts about `op`, whose body is complete."""
    for name, value in facts.items():
        op.attributes[name] = _attribute(value)
    if any(name not in _MARKS for name in facts):
        op.attributes[_NOTED] = ir.StringAttr.get(fingerprint(op))


def known(op: OpLike, name: str) -> FactValue | None:
    """The fact of that name; None if there is none, or if it was written for another body."""
    if name not in op.attributes or _NOTED not in op.attributes:
        return None
    noted = op.attributes[_NOTED]
    if not isinstance(noted, ir.StringAttr) or not noted.value or noted.value != fingerprint(op):
        return None
    return _value(op.attributes[name])


def fingerprint(op: OpLike) -> str:
    """Twelve hexadecimal digits that identify what the body of a `linalg.generic` computes: its ops with their
    attributes and operands, the types, the maps and the kinds of loops. A constant counts by its value, wherever it is
    defined; so does the index of a loop that runs once, which MLIR folds to a constant. Other values from outside the
    body count only by number and type. "" for a body that contains regions."""
    text = sha256()
    for name in ("indexing_maps", "iterator_types"):
        if name in op.attributes:
            text.update(str(op.attributes[name]).encode())
    block = op.regions[0].blocks[0]
    numbers = {argument: f"a{i}" for i, argument in enumerate(block.arguments)}
    zeros: set[ir.Value] = set()
    text.update(" ".join(str(argument.type) for argument in block.arguments).encode())
    for inner in block.operations:
        operation = inner.operation
        if operation.name == "arith.constant":
            continue
        if operation.name == "linalg.index" and _runs_once(op, ir.IntegerAttr(operation.attributes["dim"]).value):
            zeros.add(operation.results[0])
            continue
        if len(operation.regions):
            return ""
        operands = ["0 : index" if value in zeros else _named(value, numbers) for value in operation.operands]
        names = sorted(a if isinstance(a, str) else a.name for a in operation.attributes)
        attributes = [f"{name}={operation.attributes[name]}" for name in names]
        results = [str(result.type) for result in operation.results]
        text.update(f"\n{operation.name} {operands} {attributes} {results}".encode())
        for result in operation.results:
            numbers[result] = f"v{len(numbers)}"
    return text.hexdigest()[:12]


def _runs_once(op: OpLike, loop: int) -> bool:
    for operand, indexing in zip(op.operands, indexing_maps(op), strict=True):
        axes = [downcast(e) for e in indexing.results]
        at = [axis for axis, e in enumerate(axes) if isinstance(e, ir.AffineDimExpr) and e.position == loop]
        if at and isinstance(operand.type, ir.ShapedType):
            return not operand.type.is_dynamic_dim(at[0]) and operand.type.get_dim_size(at[0]) == 1
    return False


def _named(value: ir.Value, numbers: dict[ir.Value, str]) -> str:
    """A scalar constant by its value, also behind a barrier that hides it from compilers; other values by number."""
    constant = made_by(behind(value, "util.optimization_barrier"), "arith.constant")
    if constant is not None and not isinstance(value.type, ir.ShapedType):
        return str(constant.attributes["value"])
    return numbers.setdefault(value, f"x{len(numbers)}:{value.type}")


def _attribute(value: FactValue) -> ir.Attribute:
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, tuple):
        return ir.DenseI64ArrayAttr.get(list(value))
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _value(attribute: ir.Attribute) -> FactValue | None:
    """The value of a fact; None for an attribute of a kind that `note` does not write."""
    if isinstance(attribute, ir.StringAttr):
        return str(attribute.value)
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    return int(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None
