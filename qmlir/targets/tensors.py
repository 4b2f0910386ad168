"""Building blocks for plans that rewrite a contraction: casts, padding, splitting of a dim, sums.

Each builds at the current insertion point and supports dynamic sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from ..core.mlir import arith, ir, linalg, tensor
from ..ir.affine import indexing_maps, loops_of
from ..ir.attributes import iterator_types
from ..ir.build import dims, inlined, tensor_type
from ..ir.walk import behind, made_by, producer

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def type_of(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type)


sizes_of = dims


def zero(element: ir.Type) -> ir.Value:
    return arith.constant(element, 0.0 if isinstance(element, ir.FloatType) else 0)


def filled(sizes: Sequence[ir.Value | int], element: ir.Type) -> ir.Value:
    """A tensor of zeros."""
    return linalg.fill(zero(element), outs=[tensor.empty(list(sizes), element)])


_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


def computed(value: ir.Value) -> bool:
    """Whether the tensor is the result of a `linalg.generic`, reshaped or not."""
    return made_by(behind(value, *_RESHAPES), "linalg.generic") is not None


def known_multiple(value: ir.Value, axis: int) -> int:
    """The constant that a dynamic size is a multiple of because of a reshape; 1 if none is known."""
    op = producer(value)
    if op is None:
        return 1
    if op.name == "tensor.collapse_shape":
        source = type_of(op.operands[0])
        group = [ir.IntegerAttr(d).value for d in ir.ArrayAttr(op.attributes["reassociation"][axis])]
        sizes = [(d, source.is_dynamic_dim(d)) for d in group]
        return prod(known_multiple(op.operands[0], d) if dyn else source.get_dim_size(d) for d, dyn in sizes)
    if op.name == "linalg.generic":
        maps = indexing_maps(op)
        dim = maps[-1].results[axis]
        for operand, affine_map in zip(op.operands, maps[:-1], strict=False):
            if dim in list(affine_map.results):
                return known_multiple(operand, list(affine_map.results).index(dim))
    if op.name in ("tensor.cast", "tensor.pad") and len(op.operands) == 1:
        return known_multiple(op.operands[0], axis)
    return 1


def generic(
    inputs: Sequence[ir.Value],
    init: ir.Value,
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[..., ir.Value],
) -> ir.Value:
    """The result of a `linalg.generic`; `body` gets one scalar per input and the accumulator."""
    attributes = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
    op = linalg.GenericOp([init.type], list(inputs), [init], attributes, iterator_types(iterators))
    arguments = [type_of(value).element_type for value in (*inputs, init)]
    block = op.regions[0].blocks.append(*arguments)
    with ir.InsertionPoint(block):
        linalg.yield_([body(*block.arguments)])
    return op.results[0]


def generic_like(
    op: OpLike, operands: Sequence[ir.Value], maps: Sequence[ir.AffineMap], iterators: Sequence[str]
) -> ir.Value:
    """The result of a `linalg.generic` with the body of the linalg op `op` on other operands, the init last."""
    *inputs, init = operands
    block = op.regions[0].blocks[0]
    return generic(inputs, init, maps, iterators, lambda *arguments: inlined(block, arguments))


def rewritten(op: OpLike, operands: Sequence[ir.Value], maps: Sequence[ir.AffineMap]) -> ir.Value:
    """Replace a linalg op by a `linalg.generic`, at the insertion point, with the same body on other operands. Returns
    its result."""
    kept = {x for e in maps[-1].results for x in loops_of(e)}
    kinds = ["parallel" if x in kept else "reduction" for x in range(maps[0].n_dims)]
    made = generic_like(op, operands, maps, kinds)
    op.results[0].replace_all_uses_with(made)
    op.erase()
    return made


def elementwise(value: ir.Value, element: ir.Type, body: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """Apply `body` to every element; the result has the element type `element`."""
    rank = type_of(value).rank
    identity = ir.AffineMap.get_identity(rank)
    init = tensor.empty(sizes_of(value), element)
    return generic([value], init, [identity, identity], ["parallel"] * rank, lambda x, _: body(x))


def multiply_add(x: ir.Value, y: ir.Value, acc: ir.Value) -> ir.Value:
    """The body of a float product: the operands are extended to the accumulator's type before they are multiplied."""
    wide = [v if v.type == acc.type else arith.extf(acc.type, v) for v in (x, y)]
    return arith.addf(acc, arith.mulf(*wide))


def pad_end(value: ir.Value, dim: int, amount: int) -> ir.Value:
    """Pad the end of one dim with `amount` zeros, an int or an index value."""
    if isinstance(amount, int) and amount == 0:
        return value
    kind = type_of(value)
    sizes = [
        ir.ShapedType.get_dynamic_size() if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)
    ]
    high: list[ir.Value]
    if isinstance(amount, int):
        static_high, high = [amount if d == dim else 0 for d in range(kind.rank)], []
        sizes[dim] = sizes[dim] + amount
    else:
        marker = ir.ShapedType.get_dynamic_size()
        static_high, high = [marker if d == dim else 0 for d in range(kind.rank)], [amount]
        sizes[dim] = marker
    result = ir.RankedTensorType.get(sizes, kind.element_type)
    op = tensor.PadOp(result, value, [], high, [0] * kind.rank, static_high)
    block = op.regions[0].blocks.append(*[ir.IndexType.get()] * kind.rank)
    with ir.InsertionPoint(block):
        tensor.yield_(zero(kind.element_type))
    return op.result


def split(value: ir.Value, dim: int, outer: ir.Value | int, inner: ir.Value | int) -> ir.Value:
    """`[.., outer * inner, ..]` -> `[.., outer, inner, ..]`; `outer` is an int or an index value."""
    sizes = sizes_of(value)
    sizes[dim : dim + 1] = [outer, inner]
    groups: list[list[int]] = []
    for d in range(len(sizes)):
        if d == dim + 1:
            groups[-1].append(d)
        else:
            groups.append([d])
    result = tensor_type(sizes, type_of(value).element_type)
    dynamic = [s for s in sizes if not isinstance(s, int)]
    static = [s if isinstance(s, int) else ir.ShapedType.get_dynamic_size() for s in sizes]
    return tensor.expand_shape(result, value, groups, dynamic, static)


def merge(value: ir.Value, dim: int) -> ir.Value:
    """`[.., a, b, ..]` -> `[.., a * b, ..]` for the dims `dim` and `dim + 1`; the inverse of `split`."""
    kind = type_of(value)
    marker = ir.ShapedType.get_dynamic_size()
    sizes = [marker if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
    merged = marker if marker in sizes[dim : dim + 2] else sizes[dim] * sizes[dim + 1]
    result = ir.RankedTensorType.get([*sizes[:dim], merged, *sizes[dim + 2 :]], kind.element_type)
    groups = [[d] for d in range(dim)] + [[dim, dim + 1]] + [[d] for d in range(dim + 2, kind.rank)]
    return tensor.collapse_shape(result, value, groups)


def permuted(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Transpose `value`: dim `i` of the result is its dim `order[i]`."""
    sizes = sizes_of(value)
    init = tensor.empty([sizes[d] for d in order], type_of(value).element_type)
    rank = len(order)
    source = ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(list(order).index(d)) for d in range(rank)])
    identity = ir.AffineMap.get_identity(rank)
    return generic([value], init, [source, identity], ["parallel"] * rank, lambda x, _: x)


def sum_over(value: ir.Value, dim: int, init: ir.Value, convert: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """`init` plus the sum of `convert(element)` over one dim, in `init`'s integer type."""
    rank = type_of(value).rank
    kept = [d for d in range(rank) if d != dim]
    target = ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(d) for d in kept])
    iterators = ["reduction" if d == dim else "parallel" for d in range(rank)]
    maps = [ir.AffineMap.get_identity(rank), target]
    return generic([value], init, maps, iterators, lambda x, acc: arith.addi(convert(x), acc))
