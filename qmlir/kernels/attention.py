"""What an attention op computes, independent of how a kernel does it.

score[b.., m, k2] = scale * (sum over k1 of q[b.., m, k1] * k[b.., k2, k1]) + mask
out[b.., m, n]    = sum over k2 of (softmax of score over k2) * v[b.., k2, n]

Query heads may share keys and values (grouped-query attention): keys and values then do not follow all batch axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.faults import Fault
from ..core.mlir import arith, ir, tensor
from ..ir.walk import behind, made_by
from .description import Unfit

if TYPE_CHECKING:
    from ..core.mlir import OpLike

OP = "iree_linalg_ext.attention"

FAULTS = (
    Fault(
        "IREE hands the body of an attention, which changes the scores before the softmax, scores times log2(e).",
        canary="attention_body",
    ),
)


@dataclass(frozen=True)
class AttentionTensor:
    """An operand and the loop that each of its axes follows."""

    value: ir.Value
    axes: tuple[int, ...]

    @property
    def stored(self) -> ir.Value:
        """The tensor whose leading slice along the outermost axis `value` is, such as a cache that is not full; `value`
        itself if it is no such slice. IREE would copy the slice for a dispatch that reads it."""
        op = made_by(self.value, "tensor.extract_slice")
        if op is None:
            return self.value
        source, kind = op.operands[0], ir.RankedTensorType(op.operands[0].type)
        offsets, sizes, strides = (list(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
        first = not any(offsets) and all(step == 1 for step in strides)
        same = kind.rank == len(self.axes) and kind.has_static_shape and sizes[1:] == list(kind.shape)[1:]
        return source if first and same else self.value


@dataclass(frozen=True)
class Attention:
    """An attention op with its loops sorted by role. `sizes`: of each loop, None if dynamic. `batch` also holds the
    loops that only queries and the result follow, except the longest of them, which is `rows`."""

    op: OpLike
    q: AttentionTensor
    k: AttentionTensor
    v: AttentionTensor
    scale: ir.Value
    mask: AttentionTensor | None
    out: AttentionTensor
    batch: tuple[int, ...]  # loops along which keys and values are shared come last
    rows: tuple[int, ...]  # of queries: m
    keys: tuple[int, ...]  # k2
    inner: tuple[int, ...]  # of queries and keys: k1
    columns: tuple[int, ...]  # of values: n
    sizes: tuple[int | None, ...]

    @property
    def tensors(self) -> tuple[AttentionTensor, ...]:
        """The operands in the op's order, without the scale, and the result."""
        return tuple(t for t in (self.q, self.k, self.v, self.mask, self.out) if t is not None)

    def size_values(self) -> list[ir.Value | int]:
        """The size of each loop at the insertion point: an int, or an index."""
        found: list[ir.Value | int | None] = list(self.sizes)
        for t in (self.q, self.k, self.v):
            for axis, loop in enumerate(t.axes):
                if found[loop] is None:
                    found[loop] = tensor.dim(t.value, arith.constant(ir.IndexType.get(), axis))
        return [size for size in found if size is not None]


def describe(op: OpLike) -> Attention:
    """Read an `iree_linalg_ext.attention`. Raises Unfit for axes that do not fit the formula."""
    maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
    operands = list(op.operands)
    if len(operands) not in (5, 6) or len(maps) != len(operands):
        raise Unfit(f"it has {len(operands)} operands", "q, k, v, scale, perhaps a mask, and a result")
    tensors = [AttentionTensor(value, _axes(m)) for value, m in zip(operands, maps, strict=True)]
    q, k, v, scale, *mask, out = tensors
    count = maps[0].n_dims
    sets = [set(t.axes) for t in (q, k, v, out)]

    def dims(*inside: int) -> tuple[int, ...]:
        return tuple(d for d in range(count) if all((d in s) == (i in inside) for i, s in enumerate(sets)))

    stated: list[set[int | None]] = [set() for _ in range(count)]
    for t in (q, k, v, *mask, out):
        kind = ir.RankedTensorType(t.value.type)
        for axis, loop in enumerate(t.axes):
            stated[loop].add(None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis))
    # A loop whose size only some tensors state is dynamic, so that every dynamic axis has a size operand.
    sizes = [next(iter(values)) if len(values) == 1 else None for values in stated]
    rows = dims(0, 3)
    if rows:
        longest = max(rows, key=lambda d: (sizes[d] is None, sizes[d] or 0))
        shared, rows = tuple(d for d in rows if d != longest), (longest,)
    else:
        shared = ()
    found = Attention(
        op, q, k, v, scale.value, mask[0] if mask else None, out,
        batch=(*dims(0, 1, 2, 3), *shared), rows=rows, keys=dims(1, 2), inner=dims(0, 1), columns=dims(2, 3),
        sizes=tuple(sizes),
    )  # fmt: skip
    known = (*found.batch, *found.rows, *found.keys, *found.inner, *found.columns)
    if len(known) != count:
        raise Unfit(
            "an axis belongs to one operand only, or to exactly three of q, k, v and the result",
            "axes of the batch in all of q, k and v",
        )
    return found


def build(
    q: AttentionTensor,
    k: AttentionTensor,
    v: AttentionTensor,
    scale: ir.Value,
    mask: AttentionTensor | None,
    out: AttentionTensor,
) -> ir.Value:
    """Create the op at the insertion point and return its result; the `axes` of the tensors number the loops."""
    count = 1 + max(a for t in (q, k, v, out) for a in t.axes)
    masks = [] if mask is None else [mask]
    read = [q, k, v, AttentionTensor(scale, ()), *masks, out]
    maps = [ir.AffineMap.get(count, 0, [ir.AffineDimExpr.get(a) for a in t.axes]) for t in read]
    made = ir.Operation.create(
        OP, results=[out.value.type], operands=[t.value for t in read], regions=1,
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, len(masks), 1]),
        },
    )  # fmt: skip
    block = made.regions[0].blocks.append(scale.type)
    with ir.InsertionPoint(block):
        ir.Operation.create("iree_linalg_ext.yield", operands=[block.arguments[0]])
    return made.results[0]


def has_body(op: OpLike) -> bool:
    """Whether the op's body changes the scores beyond scale and mask: IREE's own attention is wrong then
    (`FAULTS`)."""
    first: ir.OpView = op.regions[0].blocks[0].operations[0]
    return bool(first.operation.name != "iree_linalg_ext.yield")


def _axes(affine_map: ir.AffineMap) -> tuple[int, ...]:
    found = []
    for expression in affine_map.results:
        if not isinstance(expression, ir.AffineDimExpr):
            raise Unfit(f"an operand is read at {expression}", "every axis of an operand follows one loop")
        found.append(expression.position)
    return tuple(found)


def scale_of(value: ir.Value) -> float | None:
    """The value of a constant scale, seen through float casts; None if it is not constant."""
    op = made_by(behind(value, "arith.truncf", "arith.extf"), "arith.constant")
    return None if op is None else float(ir.FloatAttr(op.attributes["value"]).value)


def one(loops: Sequence[int]) -> int | None:
    """The only loop of a role, None if there are several or none."""
    return loops[0] if len(loops) == 1 else None
