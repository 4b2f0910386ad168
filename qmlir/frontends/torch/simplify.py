"""Remove nodes without effect between quantised operators, before the rules look for products."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .graph import TRANSPOSES, VIEWS, TorchGraph, argument, aten, dtype_of, is_tensor, retyped, same_shape, shape_of

if TYPE_CHECKING:
    from torch.fx.node import Target

_ASSERTIONS = (aten._assert_tensor_metadata.default, aten._assert_scalar.default,
               aten.sym_constrain_range_for_size.default, aten.sym_constrain_range.default)  # fmt: skip
_IDENTITIES = (aten.detach.default, aten.alias.default, aten.clone.default, aten.lift_fresh_copy.default,
               aten.contiguous.default, aten.detach_.default)  # fmt: skip
_CASTS = (aten._to_copy.default, aten.to.dtype, aten.to.dtype_layout)
_DEQUANTIZE_PER_TENSOR = tuple(
    f"quantized_decomposed::dequantize_per_tensor{o}" for o in ("", ".tensor", ".tensor2")
)  # fmt: skip
MOVES = (*VIEWS, *TRANSPOSES, aten.expand.default, aten.slice.Tensor, aten.select.int)


def simplify(graph: TorchGraph) -> None:
    """Rewrite `graph` in place; every step is bit-exact."""
    merge_equal(graph)
    for step in (_drop_assertions, _drop_identities, _merge_views, _signed_int_mm, _move_before_dequantize):
        for node in graph.nodes:
            if node.op == "call_function" and node.graph is graph.gm.graph and not node._erased:
                step(graph, node)
        graph.clean()


def views_of_strides(graph: TorchGraph) -> None:
    """Replace `as_strided` by a view where both name the elements of a tensor in the order of memory: as group norms of
    one pixel per image end."""
    for node in graph.nodes:
        if node.target is aten.as_strided.default:
            source: torch.fx.Node = node.args[0]
            first, second = source.meta["val"], node.meta["val"]
            start = argument(node, "storage_offset")
            same_start = start is None or statically_known_true(start == first.storage_offset())
            whole = statically_known_true(first.numel() == second.numel())
            if same_start and whole and _is_row_major(first) and _is_row_major(second):
                made = graph.call(node, aten.view.default, (source, node.args[1]), {}, second)
                graph.replace(node, made)
    graph.clean()


def _is_row_major(tensor: torch.Tensor) -> bool:
    """Whether elements follow each other in memory by their axes, for all values of dynamic sizes."""
    step: int | torch.SymInt = 1
    for size, stride in reversed(list(zip(tensor.shape, tensor.stride(), strict=True))):
        if not statically_known_true(size == 1):
            if not statically_known_true(stride == step):
                return False
            step = step * size
    return True


def merge_equal(graph: TorchGraph) -> None:
    """Merge calls of the same operator on the same arguments into one node: linear layers that share an activation each
    quantise it."""
    seen: dict[str, Node] = {}
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or (schema is None and node.target is not operator.getitem):
            continue
        if schema is not None and (schema.is_mutable or _random(node)):
            continue
        key = repr((node.target, node.args, sorted(node.kwargs.items(), key=lambda item: item[0])))
        first = seen.setdefault(key, node)
        if first is not node:
            graph.replace(node, first)
    graph.clean()


def _random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _drop_assertions(graph: TorchGraph, node: Node) -> None:
    if node.target in _ASSERTIONS and not node.users:
        graph.gm.graph.erase_node(node)


def _drop_identities(graph: TorchGraph, node: Node) -> None:
    if not is_tensor(node) or not node.args or not is_tensor(node.args[0]):
        return
    source: torch.fx.Node = node.args[0]
    unchanged = node.target in _IDENTITIES
    if node.target is aten.dropout.default:
        unchanged = not argument(node, "train")
    if node.target in _CASTS:
        unchanged = dtype_of(node) == dtype_of(source)
    if node.target in (*VIEWS, aten.expand.default):
        unchanged = same_shape(shape_of(node), shape_of(source))
    if unchanged:
        graph.replace(node, source)


def _merge_views(graph: TorchGraph, node: Node) -> None:
    """Make a view of a view a view of the first value, or replace it by that value if the shape is the same."""
    if node.target not in VIEWS or not is_tensor(node):
        return
    source: torch.fx.Node = node.args[0]
    if source.op != "call_function" or source.target not in VIEWS:
        return
    first = source.args[0]
    if same_shape(shape_of(node), shape_of(first)):
        graph.replace(node, first)
    elif node.target in (aten.view.default, aten.reshape.default, aten._unsafe_view.default):
        node.replace_input_with(source, first)


def _signed_int_mm(graph: TorchGraph, node: Node) -> None:
    """Undo torchao's product for CPUs without a signed instruction: `_int_mm(u8(q + 128), w) - 128 * sum(w)` is
    `_int_mm(q, w)`."""
    if node.target is not aten.sub.Tensor or node.kwargs or dtype_of(node) != torch.int32:
        return
    product, correction = node.args
    if not (_is(product, aten._int_mm.default) and _is(correction, aten.mul.Tensor)):
        return
    total, offset = correction.args
    shifted, weight = product.args
    if not (_is(total, aten.sum.dim_IntList) and total.args[0] is weight and list(total.args[1]) == [0]):
        return
    if not (_is(shifted, aten._to_copy.default) and dtype_of(shifted) == torch.uint8):
        return
    added = shifted.args[0]
    if not (_is(added, aten.add.Tensor) and added.args[1] == offset == 128):
        return
    codes = added.args[0]
    if _is(codes, aten._to_copy.default):
        codes = codes.args[0]
    if dtype_of(codes) != torch.int8:
        return
    new = graph.call(product, aten._int_mm.default, (codes, weight), {}, product.meta["val"])
    graph.replace(node, new)


def _move_before_dequantize(graph: TorchGraph, node: Node) -> None:
    """Move an operator that only moves elements before a dequantisation that has one scale for all elements."""
    if node.target not in MOVES or not is_tensor(node):
        return
    source = node.args[0]
    if not (isinstance(source, Node) and source.op == "call_function" and is_tensor(source)):
        return
    if source.target.__class__.__name__ != "OpOverload" or name_of(source) not in _DEQUANTIZE_PER_TENSOR:
        return
    codes: torch.fx.Node = source.args[0]
    moved = graph.call(node, node.target, (codes, *node.args[1:]), dict(node.kwargs),
                       retyped(node.meta["val"], dtype_of(codes)))  # fmt: skip
    new = graph.call(node, source.target, (moved, *source.args[1:]), dict(source.kwargs), node.meta["val"])
    graph.replace(node, new)


def _is(node: torch.fx.Node, target: Target) -> bool:
    return isinstance(node, Node) and node.target is target


def name_of(node: Node) -> str:
    """`namespace::name.overload`, without the overload `default`."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return ""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
