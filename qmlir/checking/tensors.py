"""Evaluates `tensor`, `linalg` and related ops in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..core.mlir import ir, linalg
from ..dialect.dtypes import Array
from ..dialect.reference.scalars import numpy_type
from ..ir.affine import downcast, indexing_maps
from ..ir.attributes import axis_of, reassociation
from ..kernels.attention import OP as ATTENTION, describe as describe_attention

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Evaluates the ops of a block with values for its arguments; returns what its terminator yields.
RunBlock: TypeAlias = "Callable[[ir.Block, Sequence[Array]], list[Array]]"
TensorRule: TypeAlias = "Callable[[OpLike, list[Array], RunBlock], list[Array]]"

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def _type(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type)


def _mixed(op: OpLike, name: str, dynamic: Iterator[Array], missing: int = _DYNAMIC) -> list[int]:
    """The integers of attribute `name`, with the dynamic ones taken from the operands `dynamic`."""
    return [int(next(dynamic)) if s == missing else int(s) for s in op.attributes[name]]


def _segments(op: OpLike, operands: list[Array]) -> list[list[Array]]:
    sizes, at, parts = list(op.attributes["operandSegmentSizes"]), 0, []
    for size in sizes:
        parts.append(operands[at : at + size])
        at += size
    return parts


def _empty(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    t, sizes = _type(op.results[0]), iter(operands)
    shape = [int(next(sizes)) if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)]
    return [np.zeros(shape, numpy_type(t.element_type))]


def _collapse(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    x = operands[0]
    return [x.reshape([int(np.prod([x.shape[i] for i in g], dtype=np.int64)) for g in reassociation(op)])]


def _expand(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    return [operands[0].reshape(_mixed(op, "static_output_shape", iter(operands[1:])))]


def _flow_reshape(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    t, sizes = _type(op.results[0]), iter(_segments(op, operands)[-1])
    shape = [int(next(sizes)) if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)]
    return [operands[0].reshape(shape)]


def _slices(op: OpLike, parts: list[list[Array]]) -> tuple[slice, ...]:
    offsets = _mixed(op, "static_offsets", iter(parts[0]))
    sizes = _mixed(op, "static_sizes", iter(parts[1]))
    strides = _mixed(op, "static_strides", iter(parts[2]))
    return tuple(slice(o, o + (s - 1) * t + 1 if s else o, t) for o, s, t in zip(offsets, sizes, strides, strict=True))


def _extract_slice(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    source, *rest = _segments(op, operands)
    part = source[0][_slices(op, rest)]
    return [part.reshape(_reduced(part.shape, _type(op.results[0])))]


def _reduced(shape: Sequence[int], t: ir.Type) -> list[int]:
    """The sizes without the axes of size one that the type has dropped."""
    wanted = [None if t.is_dynamic_dim(i) else t.get_dim_size(i) for i in range(t.rank)]
    kept, extra = list[int](), len(shape) - t.rank
    for size in shape:
        fits = len(kept) < t.rank and wanted[len(kept)] in (None, size)
        if size == 1 and extra and not (fits and wanted[len(kept)] == 1):
            extra -= 1
            continue
        kept.append(size)
    return kept


def _insert_slice(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    source, into, *rest = _segments(op, operands)
    out = into[0].copy()
    where = _slices(op, rest)
    out[where] = source[0].reshape(out[where].shape)
    return [out]


def _pad(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    source, low_sizes, high_sizes = _segments(op, operands)
    low = _mixed(op, "static_low", iter(low_sizes))
    high = _mixed(op, "static_high", iter(high_sizes))
    body = op.regions[0].blocks[0]
    [fill] = block(body, [np.zeros((), np.int64)] * len(low))
    widths = list(zip(low, high, strict=True))
    return [np.pad(source[0], widths, constant_values=fill.reshape(()).astype(source[0].dtype))]


def _generate(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    [out] = _empty(op, operands, block)
    [value] = block(op.regions[0].blocks[0], list(np.indices(out.shape, sparse=True)))
    return [np.broadcast_to(value, out.shape).astype(out.dtype)]


def _concat(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    return [np.concatenate(operands, int(op.attributes["dim"].value))]


def _from_elements(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    t = _type(op.results[0])
    return [np.array([x.reshape(()) for x in operands], numpy_type(t.element_type)).reshape(t.shape)]


def _splat(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    [out] = _empty(op, operands[1:], block)
    return [np.full(out.shape, operands[0].reshape(()), out.dtype)]


def _softmax(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    axis, x = axis_of(op), operands[0].astype(np.float64)
    e = np.exp(x - x.max(axis, keepdims=True))
    return [(e / e.sum(axis, keepdims=True)).astype(operands[0].dtype)]


def _attention(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    a = describe_attention(op)
    q, k, v, scale, *mask, out = operands
    scores, result = (*a.batch, *a.rows, *a.keys), list(a.out.axes)
    value = scale * np.einsum(q, list(a.q.axes), k, list(a.k.axes), list(scores))
    if a.mask is not None:
        axes = a.mask.axes
        missing = [i for i, loop in enumerate(scores) if loop not in axes]
        order = sorted(range(len(axes)), key=lambda i: scores.index(axes[i]))
        value = value + np.expand_dims(mask[0].transpose(order), missing)
    [value] = block(op.regions[0].blocks[0], [value.astype(out.dtype)])
    e = np.exp((value - value.max(-1, keepdims=True)).astype(np.float64))
    weights = e / e.sum(-1, keepdims=True)
    return [np.einsum(weights, list(scores), v, list(a.v.axes), result).astype(out.dtype)]


def _apply(op: OpLike, operands: list[Array], _: RunBlock) -> list[Array]:
    affine_map = ir.AffineMapAttr(op.attributes["map"]).value
    [e] = affine_map.results
    return [np.asarray(_affine(downcast(e), [x.reshape(1) for x in operands], affine_map.n_dims)).reshape(())]


def _sort(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    """A stable sort: elements that compare equal keep their order."""
    axis = axis_of(op)
    lines = [np.moveaxis(x, axis, -1) for x in operands]
    n = lines[0].shape[-1]
    if n == 0:
        return operands
    pairs = [side for x in lines for side in (x[..., :, None], x[..., None, :])]
    [first] = block(op.regions[0].blocks[0], pairs)  # [.., i, j]: element i sorts before element j
    first = np.broadcast_to(first, (*lines[0].shape, n)).astype(bool)
    later = np.swapaxes(first, -1, -2)
    ahead = (later & ~first) | ((later == first) & (np.arange(n)[None, :] < np.arange(n)[:, None]))
    order = np.argsort(ahead.sum(-1), axis=-1)
    return [np.moveaxis(np.take_along_axis(x, order, -1), -1, axis) for x in lines]


def _scan(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    source, out, last = np.moveaxis(operands[0], axis := axis_of(op), 0), operands[1].copy(), operands[2]
    moved = np.moveaxis(out, axis, 0)
    inclusive = bool(ir.BoolAttr(op.attributes["inclusive"]).value)
    for i in range(len(source)):
        if i == 0:
            moved[0] = source[0] if inclusive else last
        else:
            [moved[i]] = block(op.regions[0].blocks[0], [moved[i - 1], source[i if inclusive else i - 1]])
    return [out, moved[-1].copy() if len(source) else last]


def _scatter(op: OpLike, operands: list[Array], block: RunBlock) -> list[Array]:
    updates, indices, out = operands[0], operands[1], operands[2].copy()
    axes = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    # The last axis of `indices` holds the coordinates of one update; with one coordinate it may be missing.
    batch = indices.ndim - 1 if indices.shape[-1:] == (len(axes),) else indices.ndim
    for at in np.ndindex(*indices.shape[:batch]):
        place: list[slice | int] = [slice(None)] * out.ndim
        for axis, index in zip(axes, np.atleast_1d(indices[at]), strict=True):
            place[axis] = int(index)
        [value] = block(op.regions[0].blocks[0], [updates[at], out[tuple(place)]])
        out[tuple(place)] = value
    return [out]


RULES: dict[str, TensorRule] = {
    ATTENTION: _attention,
    "affine.apply": _apply,
    "iree_linalg_ext.sort": _sort,
    "iree_linalg_ext.scan": _scan,
    "iree_linalg_ext.scatter": _scatter,
    "tensor.empty": _empty,
    "tensor.cast": lambda op, xs, _: [xs[0]],
    "tensor.dim": lambda op, xs, _: [np.asarray(np.int64(xs[0].shape[int(xs[1])]))],
    "tensor.rank": lambda op, xs, _: [np.asarray(np.int64(xs[0].ndim))],
    "tensor.collapse_shape": _collapse,
    "tensor.expand_shape": _expand,
    "tensor.reshape": lambda op, xs, _: [xs[0].reshape(xs[1].astype(np.int64).tolist())],
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.extract": lambda op, xs, _: [xs[0][tuple(x.astype(np.int64) for x in xs[1:])]],
    "tensor.pad": _pad,
    "tensor.generate": _generate,
    "tensor.concat": _concat,
    "tensor.splat": _splat,
    "tensor.from_elements": _from_elements,
    "linalg.softmax": _softmax,
    "flow.tensor.reshape": _flow_reshape,
    "flow.tensor.tie_shape": lambda op, xs, _: [xs[0]],
    "util.optimization_barrier": lambda op, xs, _: xs,
}


# ------------------------------------------------------------------------------------------------------ linalg


def is_structured(op: OpLike) -> bool:
    """Whether `structured` can evaluate a linalg op."""
    if not op.name.startswith("linalg.") or not len(op.regions) or not len(op.regions[0].blocks):
        return False
    try:
        linalg.get_indexing_maps(op)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def structured(op: OpLike, operands: list[Array], block: RunBlock, indices: list[Array]) -> list[Array]:
    """Evaluate a structured linalg op by its indexing maps and body: parallel loops all at once, reductions step by
    step in ascending order. `indices` is filled with the loop counters, for `linalg.index` in the body."""
    maps = indexing_maps(op)
    outputs = len(op.results)
    inputs, outs = operands[: len(operands) - outputs], [x.copy() for x in operands[len(operands) - outputs :]]
    rank = maps[0].n_dims
    sizes = _loop_sizes(maps, operands, rank)
    parallel = {e.position for m in maps[len(inputs) :] for e in map(downcast, m.results) if _is_dim(e)}
    serial = [d for d in range(rank) if d not in parallel]
    grid: list[Array] = []
    for d in range(rank):
        shape = [1] * rank
        if d in parallel:
            shape[d] = sizes[d]
        grid.append(np.arange(sizes[d] if d in parallel else 1, dtype=np.int64).reshape(shape))
    if any(sizes[d] == 0 for d in parallel):
        return outs
    loop_shape = [sizes[d] if d in parallel else 1 for d in range(rank)]
    for step in np.ndindex(*(sizes[d] for d in serial)):
        for d, at in zip(serial, step, strict=True):
            grid[d] = np.full([1] * rank, at, np.int64)
        indices[:] = grid
        arguments = [_gather(x, m, grid, rank) for x, m in zip([*inputs, *outs], maps, strict=True)]
        results = block(op.regions[0].blocks[0], arguments)
        for out, m, value in zip(outs, maps[len(inputs) :], results, strict=True):
            where = tuple(_affine(downcast(e), grid) for e in m.results)
            whole = np.broadcast_to(value, loop_shape)
            out[where] = np.broadcast_to(whole, np.broadcast_shapes(*(w.shape for w in where), (1,) * rank)) if where \
                else whole.reshape(-1)[0]  # fmt: skip
    return outs


def _loop_sizes(maps: Sequence[ir.AffineMap], operands: Sequence[Array], rank: int) -> list[int]:
    sizes = [1] * rank
    known = set[int]()
    for m, x in zip(maps, operands, strict=True):
        for expression, size in zip(map(downcast, m.results), x.shape, strict=True):
            if _is_dim(expression):
                sizes[expression.position] = size
                known.add(expression.position)
    if len(known) < rank:
        raise NotImplementedError("a loop whose size cannot be derived from an operand")
    return sizes


def _gather(x: Array, m: ir.AffineMap, grid: list[Array], rank: int) -> Array:
    if not m.results:
        return x.reshape([1] * rank)
    return x[tuple(_affine(downcast(e), grid) for e in m.results)]


def _is_dim(e: ir.AffineExpr) -> bool:
    return bool(isinstance(e, ir.AffineDimExpr))


def _affine(e: ir.AffineExpr, grid: list[Array], dims: int = 0) -> Array:
    """The value of an affine expression over the loops, as a broadcastable array. `dims`: how many entries of `grid`
    are dimensions; the symbols follow them."""
    if _is_dim(e) or isinstance(e, ir.AffineSymbolExpr):
        counter: Array = grid[e.position if _is_dim(e) else dims + e.position]
        return counter
    if isinstance(e, ir.AffineConstantExpr):
        return np.full([1] * len(grid), e.value, np.int64)
    left, right = (_affine(downcast(x), grid, dims) for x in (e.lhs, e.rhs))
    if isinstance(e, ir.AffineAddExpr):
        return left + right
    if isinstance(e, ir.AffineMulExpr):
        return left * right
    if isinstance(e, ir.AffineModExpr):
        return left % right
    if isinstance(e, ir.AffineFloorDivExpr):
        return left // right
    return -(-left // right)
