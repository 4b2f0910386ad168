"""Lower views with dynamic sizes to reshapes of builtin tensors.

torch-mlir's own conversion of `aten.view` takes a dynamic size that it cannot match for 1, which is silently wrong.
Here the symbols of the sizes determine which axes belong together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...core.mlir import arith, ir
from ...ir.build import Extent, as_index, collapse, dims, expand, tensor_type
from .graph import aten, same, shape_of

if TYPE_CHECKING:
    import torch
    from torch.fx import Node
    from torch.fx.node import Argument

RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
            aten.unflatten.int)  # fmt: skip
AxisGroup = tuple[list[int], list[int]]


def listed_sizes(node: Node) -> dict[int, Argument]:
    """The sizes that a view states, by axes of its result: numbers, -1 or nodes; of a `flatten` none."""
    listed = next((a for a in node.args if isinstance(a, (list, tuple))), [])
    first = len(shape_of(node)) - len(listed)
    if node.target is aten.unflatten.int:
        first = int(str(node.args[1])) % len(shape_of(node.args[0]))
    return dict(enumerate(listed, first))


def reshape(
    value: ir.Value,
    old: Sequence[torch.SymInt | int],
    new: Sequence[torch.SymInt | int],
    size_of: Callable[[int], Extent | None],
) -> ir.Value:
    """Reshape `value` from the sizes `old` to the sizes `new`; both may contain symbols. `size_of(j)` is the program's
    own value of size j of the result, None if it states none (-1).

    If each split or merge involves at most one dynamic size, it stays part of a loop (`expand_shape`,
    `collapse_shape`). Otherwise the tensor is reshaped between dispatches: such a reshape did not compile if fused into
    a product that reduces over dynamic sizes. `qmlir-choose-data-tiling` now works around that fault, and no known
    program needs this any more: the programs of test_views.py compile without it, with correct results."""
    groups = axes_together(old, new)
    have = dims(value)
    sizes = _sizes(groups, old, new, have, size_of)
    if any(_dynamic(have, g) > 1 and len(g) > 1 for g, _ in groups) or any(
        _dynamic(sizes, g) > 1 and len(g) > 1 for _, g in groups
    ):
        return reshape_between(value, sizes)
    merged = collapse(value, [g for g, _ in groups])
    return expand(merged, [[sizes[j] for j in g] for _, g in groups])


def reshape_between(value: ir.Value, sizes: Sequence[Extent]) -> ir.Value:
    """Reshape to any sizes, between dispatches."""
    own, new = ([s for s in many if not isinstance(s, int)] for many in (dims(value), sizes))
    return ir.Operation.create(
        "flow.tensor.reshape", results=[tensor_type(sizes, value.type.element_type)], operands=[value, *own, *new],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(own), len(new)])},
    ).result  # fmt: skip


def axes_together(old: Sequence[torch.SymInt | int], new: Sequence[torch.SymInt | int]) -> list[AxisGroup]:
    """Groups of axes of `old` and `new` that hold the same elements, as small as the symbols allow; both have axes."""
    groups: list[AxisGroup] = []
    i = j = 0
    while i < len(old) and j < len(new):
        a, b = _first_match(old[i:], new[j:])
        groups.append((list(range(i, i + a)), list(range(j, j + b))))
        i, j = i + a, j + b
    last_old, last_new = groups[-1]  # the remaining sizes are 1
    last_old.extend(range(i, len(old)))
    last_new.extend(range(j, len(new)))
    return groups


def _first_match(old: Sequence[torch.SymInt | int], new: Sequence[torch.SymInt | int]) -> tuple[int, int]:
    for total in range(2, len(old) + len(new) + 1):
        for a in range(max(1, total - len(new)), min(len(old), total - 1) + 1):
            if same(math.prod(old[:a]), math.prod(new[: total - a])):
                return a, total - a
    return len(old), len(new)


def _dynamic(sizes: Sequence[Extent], axes: Sequence[int]) -> int:
    return sum(not isinstance(sizes[i], int) for i in axes)


def _sizes(
    groups: Sequence[AxisGroup], old: Sequence[torch.SymInt | int], new: Sequence[torch.SymInt | int],
    have: Sequence[Extent], size_of: Callable[[int], Extent | None],
) -> list[Extent]:  # fmt: skip
    sizes: list[Extent | None] = [s if isinstance(s, int) else None for s in new]
    equal: Iterator[Extent | None]
    for sources, targets in groups:
        for j in targets:
            equal = (have[i] for i in sources if same(old[i], new[j]))
            if sizes[j] is None:
                own = size_of(j)
                sizes[j] = next(itertools.chain(equal, [own] if own else []), None)
        for j in targets:
            if sizes[j] is None:  # at most one: a view has one -1
                total = _product([have[i] for i in sources])
                others = _product([s for k in targets if k != j and (s := sizes[k]) is not None])
                sizes[j] = total if others == 1 else arith.divui(as_index(total), as_index(others))
    return [s for s in sizes if s is not None]


def _product(sizes: Sequence[Extent]) -> Extent:
    known = math.prod(s for s in sizes if isinstance(s, int))
    values = [s for s in sizes if not isinstance(s, int)]
    if not values:
        return known
    total = values[0]
    for s in values[1:]:
        total = arith.muli(total, s)
    return total if known == 1 else arith.muli(total, as_index(known))


def size_from(value: ir.Value) -> ir.Value:
    """Convert a `!torch.int` to an index."""
    wide = ir.Operation.create("torch_c.to_i64", results=[ir.IntegerType.get_signless(64)], operands=[value]).result
    return arith.index_cast(ir.IndexType.get(), wide)
