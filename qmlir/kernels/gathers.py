"""What an index picks: rows of an activation, matrices of a weight, as a generic that reads a tensor in its body."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.mlir import ir
from ..ir.affine import indexing_maps
from ..ir.walk import BARRIERS, made_by, producer_name
from .axes import Axis, dims_of, size_of
from .bodies import scalar_constant
from .description import BATCH, GROUP, ROW, Batch, Factor, Unfit
from .factors import flipped_source

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# The attribute of what counts the matrices whose blocks have ended, which the lowering sets to the rows of a block.
ENDED_BLOCKS = "qmlir.ended_blocks"


def gather(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The source `[R, ..]` and the index `[..]` (i32) of a tensor whose first axes are rows that an index picks, and
    whose last ones are all of the source's other axes."""
    while producer_name(value) in BARRIERS:
        value = value.owner.operation.operands[0]
    if producer_name(value) != "linalg.generic":
        return None
    op = value.owner.operation
    maps = indexing_maps(op)
    if len(op.operands) != 2 or maps[-1] != ir.AffineMap.get_identity(maps[-1].n_dims):
        return None
    depth = len(list(maps[0].results))
    if dims_of(maps[0]) != list(range(depth)):
        return None
    block = op.regions[0].blocks[0]
    known: dict[ir.Value, int | str] = {block.arguments[0]: "row"}
    source: Any = None
    for inner in block.operations:
        operation = inner.operation
        if operation.name == "arith.index_cast" and operation.operands[0] in known:
            known[operation.results[0]] = known[operation.operands[0]]
        elif operation.name == "linalg.index":
            known[operation.results[0]] = int(operation.attributes["dim"].value)
        elif operation.name == "tensor.extract" and source is None:
            picked, *where = operation.operands
            axes = [known.get(w, "zero" if _is_zero(w) else None) for w in where]
            # The index of an axis of one element is a constant.
            inner = range(depth, maps[-1].n_dims)
            wanted = [{"row"}, *({d} if size_of(op.results[0], d) != 1 else {d, "zero"} for d in inner)]
            if len(axes) != len(wanted) or any(a not in w for a, w in zip(axes, wanted, strict=True)):
                return None
            source, known[operation.results[0]] = picked, "value"
        elif operation.name == "linalg.yield" and known.get(operation.operands[0]) == "value":
            return source, op.operands[0]
        else:
            return None
    return None


def _is_zero(value: ir.Value) -> bool:
    attribute = scalar_constant(value)
    return isinstance(attribute, ir.IntegerAttr) and attribute.value == 0


def repeated(source: ir.Value) -> tuple[ir.Value, int]:
    """Rows `[T, ..]`, and how often each of them stands in `source`, one behind the other."""
    if producer_name(source) == "tensor.collapse_shape":
        # `[T, X, K]`, in which a generic wrote each row of `[T, K]` X times.
        owner = source.owner.operation
        copy = producer_name(owner.operands[0]) == "linalg.generic" and owner.operands[0].owner.operation
        if copy and len(copy.operands) == 2 and dims_of(indexing_maps(copy)[0]) == [0, 2] and _only_yields(copy):
            size = size_of(owner.operands[0], 1)
            if size is not None and ir.RankedTensorType(owner.operands[0].type).rank == 3:
                return copy.operands[0], size
    return source, 1


def _only_yields(op: OpLike) -> bool:
    block = op.regions[0].blocks[0]
    last = next(iter(block.operations)).operation
    return bool(last.name == "linalg.yield" and last.operands[0] == block.arguments[0])


def unbounded(index: ir.Value, size: int) -> ir.Value:
    """The index in front of an elementwise op that only brings what is outside of `[0, size)` to the nearest end."""
    if producer_name(index) != "linalg.generic" or len(index.owner.operation.operands) != 2:
        return index
    op = index.owner.operation
    if any(m != ir.AffineMap.get_identity(1) for m in indexing_maps(op)):
        return index
    value = op.regions[0].blocks[0].arguments[0]
    bounds: list[tuple[str, int]] = []
    for inner in op.regions[0].blocks[0].operations:
        operation = inner.operation
        if operation.name == "linalg.yield":
            same = operation.operands[0] == value and sorted(bounds) == [("maxsi", 0), ("minsi", size - 1)]
            return op.operands[0] if same else index
        name = operation.name.removeprefix("arith.")
        bound = scalar_constant(operation.operands[1]) if name in ("minsi", "maxsi") else None
        if bound is None or operation.operands[0] != value:
            return index
        bounds.append((name, int(bound.value)))
        value = operation.results[0]
    return index


def gathered_rows(batch: Batch, lhs: Factor, dynamic: bool = False) -> tuple[Batch, Factor]:
    """Rows that are picked from an activation by an index are read from where they are; also where their number, or
    that of the products, is `dynamic`."""
    gathered = gather(lhs.value)
    if gathered is None or ir.RankedTensorType(gathered[1].type).rank != 2:
        return batch, lhs
    source, rows = gathered
    source, repeats = repeated(source)
    if not dynamic and None in (batch.size, size_of(source, 0)):
        return batch, lhs
    if size_of(source, 0) == 1:
        repeats = 2**31 - 1  # one row is all rows, whatever the index says (passes/lower/grouped.py: slot_rows)
    flipped = flipped_source(source)
    if flipped is not None:
        lhs = replace(lhs, flipped=True)
        source = flipped
    return replace(batch, rows=rows, repeats=repeats), replace(lhs, value=source, source_axes=(ROW, "k"))


def batch_of(axis: Axis, rhs: Factor) -> tuple[Batch, Factor]:
    """The batch, and the weight that its matrices are picked from."""
    gathered = gather(rhs.value)
    if rhs.source_axes[0] != BATCH:
        raise Unfit("the matrices of the weight are not its first axis", "a weight [B, N, K]")
    if gathered is None:
        return Batch(axis.size, axis.size or 0), rhs
    source, index = gathered
    if ir.RankedTensorType(index.type).rank != 1:
        raise Unfit("the matrices are picked by more than one axis", "one matrix a product")
    matrices = size_of(source, 0)
    if matrices is None:
        raise Unfit("the number of matrices is dynamic", "a static [G, N, K] weight")
    return Batch(axis.size, matrices, unbounded(index, matrices)), replace(rhs, value=source)


def ungrouped(factor: Factor) -> Factor:
    """The tensor in front of a view that splits K of rows or matrices that an index picks into groups."""
    *outer, last, k = factor.source_axes
    if producer_name(factor.value) != "tensor.expand_shape" or (last, k) != (GROUP, "k"):
        return factor
    view = factor.value.owner.operation
    split = [len(list(group)) for group in view.attributes["reassociation"]]
    if split != [1] * len(outer) + [2] or gather(view.operands[0]) is None:
        return factor
    return replace(factor, value=view.operands[0], source_axes=(*outer, "k"))


def counts_of(batch: Batch, rows: int | None) -> tuple[ir.Value, ir.Value] | None:
    """`Batch.counts` where products are blocks of `rows` rows (passes/core/lower/blocks.py): the index of a block
    counts the matrices whose blocks end at or before it, from where they start and how many they have, which is
    `ceil(rows of a matrix / rows of a block)`."""
    ended = None if batch.index is None else made_by(batch.index, "linalg.generic")
    if ended is None or ENDED_BLOCKS not in ended.attributes or ended.attributes[ENDED_BLOCKS].value != rows:
        return None
    start, blocks, _ = ended.operands
    rounded = made_by(blocks, "linalg.generic")
    return None if rounded is None else (start, rounded.operands[0])
