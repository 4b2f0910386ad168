"""qmlir-undo-broadcasts: read a tensor that is repeated along an axis directly, not through copies of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from ...core.mlir import arith, ir, linalg
from ...ir.affine import axis_loops, indexing_maps
from ...ir.attributes import reassociation
from ...ir.build import collapse, dims, expand, filled
from ...ir.products import matrix_product
from ...ir.walk import collect, defining_op, made_by, producer, terminator_of
from ...kernels.bodies import scalar_constant
from ..base import Pass, State
from .contractions import is_product

if TYPE_CHECKING:
    from ...core.mlir import OpLike

# What is known of a size: two sizes for which this is equal are equal.
_Size: TypeAlias = "int | tuple[ir.Value, int] | ir.Value"


@dataclass(frozen=True)
class UndoBroadcastsPass(Pass):
    """Front ends write a broadcast of dynamic sizes as a gather, which tests at run time whether a size is 1. They
    write a product of one matrix with rows in several axes as a batch of products by copies of that matrix.

    If the sizes that a gather tests are those of its loops, its indices are its loops. It then becomes an op that reads
    the tensor as an operand, so that its consumers can be part of a kernel for rows. A batch of float products that all
    have the same matrix becomes one product of all rows: the matrix is packed, and tiles hold rows of any product.
    """

    name: ClassVar[str] = "qmlir-undo-broadcasts"
    summary: ClassVar[str] = "read a broadcast tensor directly instead of its copies"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "linalg.generic", where=_is_gather):
            with op.location, ir.InsertionPoint(op):
                _read_by_loops(op)
        for op in collect(module, where=is_product):
            matrix = _common_matrix(op)
            if matrix is not None:
                with op.location, ir.InsertionPoint(op):
                    op.results[0].replace_all_uses_with(_one_product(op, matrix))
                op.erase()


# ---- gathers


def _is_gather(op: OpLike) -> bool:
    """Whether each element of the result is read from a tensor, at indices computed from its position."""
    extract = made_by(terminator_of(op.regions[0].blocks[0]).operands[0], "tensor.extract")
    return (
        len(op.operands) == len(op.results) == 1
        and extract is not None
        and extract.parent == op
        and indexing_maps(op)[0] == ir.AffineMap.get_identity(indexing_maps(op)[0].n_dims)
    )


def _read_by_loops(gather: OpLike) -> None:
    """Replace a gather whose indices are its loops by an op that reads the tensor as an operand."""
    out = gather.operands[0]
    yielded = terminator_of(gather.regions[0].blocks[0]).operands[0]
    source, *indices = defining_op(yielded).operands
    read: list[ir.AffineExpr] = []
    for axis, index in enumerate(indices):
        if _size(source, axis) == 1:
            read.append(ir.AffineConstantExpr.get(0))
            continue
        loop = _loop(index, out)
        if loop is None or _size(source, axis) != _size(out, loop):
            return
        read.append(ir.AffineDimExpr.get(loop))
    rank = len(out.type.shape)
    maps = [ir.AffineMap.get(rank, 0, read), ir.AffineMap.get_identity(rank)]
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    made = linalg.GenericOp([out.type], [source], [out], attributes, gather.attributes["iterator_types"])
    element = out.type.element_type
    with ir.InsertionPoint(made.regions[0].blocks.append(element, element)) as inside:
        linalg.YieldOp([inside.block.arguments[0]])
    gather.results[0].replace_all_uses_with(made.results[0])
    gather.erase()


def _loop(index: ir.Value, out: ir.Value) -> int | None:
    """The loop that gives an index, also if a select replaces the index by 0 when the loop's size is 1."""
    select = made_by(index, "arith.select")
    if select is not None:
        test = made_by(select.operands[0], "arith.cmpi")
        if test is None or _number(select.operands[1]) != 0 or _number(test.operands[1]) != 1:
            return None
        loop = _loop(select.operands[2], out)
        equal = ir.IntegerAttr(test.attributes["predicate"]).value == arith.CmpIPredicate.eq
        return loop if loop is not None and equal and _known(test.operands[0]) == _size(out, loop) else None
    found = made_by(index, "linalg.index")
    return None if found is None else int(ir.IntegerAttr(found.attributes["dim"]).value)


def _size(value: ir.Value, axis: int) -> _Size:
    """What is known of the size of an axis: an integer, the index value that defines it, or a tensor and its axis."""
    kind = ir.RankedTensorType(value.type)
    if not kind.is_dynamic_dim(axis):
        return int(kind.get_dim_size(axis))
    op = producer(value)
    if op is not None and op.name == "tensor.empty":
        before = sum(kind.is_dynamic_dim(i) for i in range(axis))
        return _known(op.operands[before])
    if op is not None and op.name == "tensor.expand_shape":
        before = sum(kind.is_dynamic_dim(i) for i in range(axis))
        return _known(op.operands[1 + before])
    if op is not None and op.name.startswith("linalg.") and len(op.results):
        number = list(op.results).index(value)
        return _size(list(op.operands)[len(op.operands) - len(op.results) + number], axis)
    return value, axis


def _known(size: ir.Value) -> _Size:
    of = made_by(size, "tensor.dim")
    axis = None if of is None else _number(of.operands[1])
    return size if of is None or axis is None else _size(of.operands[0], axis)


def _number(value: ir.Value) -> int | None:
    known = scalar_constant(value)
    return int(known.value) if isinstance(known, ir.IntegerAttr) else None


# ---- products


def _common_matrix(op: OpLike) -> ir.Value | None:
    """The matrix `[K, N]` that all products of a batch `[b.., M, K]` by `[b.., K, N]` of floats share, if they do."""
    lhs, rhs, out = op.operands
    rank = len(out.type.shape)
    batch, (m, n, k) = range(rank - 2), range(rank - 2, rank + 1)
    maps = indexing_maps(op)
    if rank < 3 or not isinstance(lhs.type.element_type, ir.FloatType) or made_by(out, "linalg.fill") is None:
        return None
    if lhs.type.element_type != rhs.type.element_type or not all(m.is_projected_permutation for m in maps):
        return None
    found = [axis_loops(m) for m in maps]
    ours = [*found[2], *(i for i in found[0] if i not in found[2])]  # the op's loop for each of (b.., m, n, k)
    if len(ours) != rank + 1 or found != [[ours[i] for i in (*batch, *own)] for own in ((m, k), (k, n), (m, n))]:
        return None
    merged = made_by(rhs, "tensor.collapse_shape")  # several batch axes may be merged into one
    if merged is not None and any(len(group) > 1 for group in reassociation(merged)[-2:]):
        return None
    copies = made_by(rhs if merged is None else merged.operands[0], "linalg.generic", "linalg.broadcast")
    if copies is None or len(copies.operands) != 2:
        return None
    body, (read, written) = copies.regions[0].blocks[0], indexing_maps(copies)
    axes = written.n_dims
    same = terminator_of(body).operands[0] == body.arguments[0] and written == ir.AffineMap.get_identity(axes)
    last = [ir.AffineDimExpr.get(i) for i in (axes - 2, axes - 1)]
    return copies.operands[0] if same and list(read.results) == last else None


def _one_product(op: OpLike, matrix: ir.Value) -> ir.Value:
    lhs, _, out = op.operands
    sizes = dims(out)
    last = len(sizes) - 1
    rows = collapse(lhs, [list(range(last)), [last]])
    zero = defining_op(out).operands[0]
    product = matrix_product(rows, matrix, filled([dims(rows)[0], sizes[last]], zero))
    return expand(product, [sizes[:last], [sizes[last]]])
