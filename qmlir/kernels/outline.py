"""Replaces a group of ops by a dispatch of an executable: the host side of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..core.mlir import EXECUTABLES, arith, flow, ir, linalg, tensor
from ..dialect.constants import constant_array
from ..ir.attributes import entry_points
from ..ir.walk import made_by, operations_of
from .description import ORDER, Factor, Kernel, Operand

if TYPE_CHECKING:
    from ..core.mlir import OpLike

# Emits a `stream.executable` of the given name at the current insertion point, for inputs and a result of the given
# types; returns its entry point as the text of a symbol reference.
Emit: TypeAlias = "Callable[[str, Sequence[ir.Type], ir.Type], str]"
_DIGEST = "qmlir.digest"


@dataclass(frozen=True)
class Scratch:
    """Memory that a kernel needs in addition to its operands: a number of i32 counters, which start at zero, and a
    workspace of a number of elements, which is not initialised."""

    counters: int
    words: int
    element: ir.Type

    @property
    def types(self) -> tuple[ir.Type, ir.Type]:
        """The types of the two tensors."""
        return _tensor([self.counters], ir.IntegerType.get_signless(32)), _tensor([self.words], self.element)


def widest(scratches: Sequence[Scratch | None]) -> Scratch | None:
    """Scratch memory that is enough for each of several kernels of one product, None if none needs any."""
    found = [s for s in scratches if s is not None]
    if not found:
        return None
    return Scratch(max(s.counters for s in found), max(s.words for s in found), found[0].element)


def outline(
    kernel: Kernel,
    rhs: Callable[[], ir.Value],
    emit: Emit,
    first: Callable[[], Sequence[ir.Value]] = tuple,
    size_type: ir.Type | None = None,
    arrange: Callable[[Operand], ir.Value] | None = None,
    scratch: Scratch | None = None,
) -> None:
    """Replace the group of `kernel` by a dispatch of the executable that `emit` makes.

    The executable's operands are, in this order:

    - the scalars that `first` makes at the dispatch;
    - M, or the size of a batch, if it is dynamic, then the number of tokens if rows are gathered from a dynamic number
      of them, each as an index or as `size_type`;
    - the activation `[M, K]` (`[B, M, K]` of a batch, or `[R, K]` if its rows are gathered);
    - the weight in the kernel's layout, which `rhs` makes before the group's last op;
    - the tensors of `gather_indices`, if the batch has any;
    - each of `kernel.operands`, by default with its axes in `ORDER`; `arrange` makes the tensor in another order;
    - with `scratch`, the counters;
    - the result `[M, N]`, and with `scratch` the workspace.

    `emit` gets the types of counters and workspace after those of the inputs.
    """
    last = kernel.operations[-1]
    function = function_of(last)
    result = last.results[0]
    with last.location, ir.InsertionPoint(last):
        lhs = matrix(kernel.lhs, kernel.k)
        inputs = [lhs, rhs(), *gather_indices(kernel), *((arrange or aligned)(o) for o in kernel.operands)]
        # The size of a batch with an index is that of the index; its activation may have any number of rows.
        counted = lhs if kernel.batch is None or kernel.batch.index is None else kernel.batch.index
        first_sizes = [_first_size(counted)] if kernel.dynamic else []
        tokens = [_first_size(lhs)] if has_tokens(kernel) else []
        rows = [_rows(kernel, size) for size in first_sizes]
        batch = [] if kernel.batch is None or kernel.side_by_side else [kernel.batch.size]
        out = _tensor([*batch, kernel.m, kernel.columns], kernel.result_type)
        out_sizes = rows
        if kernel.planes:
            window = kernel.lhs.window
            assert window is not None
            out = _tensor([window.image[0], kernel.columns, window.result[0] * window.result[1]], kernel.result_type)
            out_sizes = first_sizes
        if kernel.batch is not None and kernel.batch.target is not None:
            out = result.type
            out_sizes = [_first_size(last.operands[len(last.operands) - 1])] if _is_dynamic(result) else []
        if kernel.batch is None or kernel.side_by_side:
            input_sizes = [*(first_sizes if _is_dynamic(lhs) else []), *_dynamic_sizes(inputs[1:], rows)]
        else:
            input_sizes = [_first_size(value) for value in inputs if _is_dynamic(value)]
    with last.location, ir.InsertionPoint(function):
        name = unused_name(function, "product")
        more = () if scratch is None else scratch.types
        entry = emit(name, [*(value.type for value in inputs), *more], out)
    entry = once(function.parent, name, entry)
    with last.location, ir.InsertionPoint(last):
        known = [*rows, *tokens]
        sizes = known if size_type is None else [arith.index_cast(size_type, size) for size in known]
        operands = [*first(), *sizes, *inputs]
        results, tied = [out], None
        if scratch is not None:
            # Counters are also a result, tied to the operand: each call counts in its own copy of the zeros.
            counters, space = scratch.types
            results, tied = [out, counters, space], _tied((-1, len(operands), -1))
            operands.append(flow.TensorSplatOp(counters, _zero(counters.element_type), []).result)
        call = flow.DispatchOp(results, rows, entry_points(entry), operands, input_sizes, out_sizes, tied_operands=tied)
        result.replace_all_uses_with(_as_result(call.results[0], result.type, kernel, rows))
    _erase(kernel)


def _zero(t: ir.Type) -> ir.Value:
    return arith.constant(t, ir.IntegerAttr.get(t, 0))


def _tied(operands: Sequence[int]) -> ir.Attribute:
    """The attribute that gives for each result the operand it is tied to, -1 for none."""
    return ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), i) for i in operands])


def function_of(op: OpLike) -> OpLike:
    """The function that an op is in."""
    function = op.parent
    while function.parent.name != "builtin.module":
        function = function.parent
    return function


def gather_indices(kernel: Kernel) -> list[ir.Value]:
    """The tensors that say which matrix and rows each product of a batch has, and where its rows are written: those of
    index, counts, rows and target that the batch has."""
    batch = kernel.batch
    if batch is None:
        return []
    return [v for v in (batch.index, *(batch.counts or ()), batch.rows, batch.target) if v is not None]


def _tensor(shape: Sequence[int | None], element: ir.Type) -> ir.Type:
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([dynamic if s is None else s for s in shape], element)


def _rows(kernel: Kernel, size: ir.Value) -> ir.Value:
    """The number of rows of an activation whose first axis has `size`: of a convolution, the pixels of all results."""
    window = kernel.lhs.window
    if window is None:
        return size
    return arith.muli(size, arith.constant(ir.IndexType.get(), window.result[0] * window.result[1]))


def _first_size(value: ir.Value) -> ir.Value:
    return tensor.dim(value, arith.constant(ir.IndexType.get(), 0))


def _is_dynamic(value: ir.Value) -> bool:
    kind = ir.RankedTensorType(value.type)
    return bool(kind.rank and kind.is_dynamic_dim(0))


def has_tokens(kernel: Kernel) -> bool:
    """Whether rows are gathered from an activation with a dynamic number of rows."""
    return kernel.batch is not None and kernel.batch.rows is not None and _is_dynamic(kernel.lhs.value)


def _dynamic_sizes(values: Sequence[ir.Value], rows: list[ir.Value]) -> list[ir.Value]:
    """The size of every dynamic axis of the operands: the number of rows, which alone is dynamic."""
    kinds = [ir.RankedTensorType(v.type) for v in values]
    return [rows[0] for kind in kinds for d in range(kind.rank) if kind.is_dynamic_dim(d)]


def once(module: OpLike, name: str, entry: str) -> str:
    """Deduplicate the executable `name`: if the module has one that differs in its name only, erase the new one and
    return the entry point of the other; otherwise return `entry`. The layers of a model repeat their kernels, and each
    takes IREE a third of a second to compile."""
    executables = [o for o in operations_of(module.regions[0].blocks[0]) if o.name in EXECUTABLES]
    new = next(o for o in executables if o.attributes["sym_name"].value == name)
    text = str(new.get_asm(assume_verified=True, use_local_scope=True))
    digest = sha256(text.replace(name, "").encode()).hexdigest()
    for other in executables:
        if _DIGEST in other.attributes and other.attributes[_DIGEST].value == digest:
            new.erase()
            return entry.replace(name, str(other.attributes["sym_name"].value))
    new.attributes[_DIGEST] = ir.StringAttr.get(digest)
    return entry


def unused_name(function: OpLike, what: str) -> str:
    """A name that is not yet used in the module, for an executable and its entry point."""
    base = f"{function.attributes['sym_name'].value}_{what}"
    block = function.parent.regions[0].blocks[0]
    operations = operations_of(block)
    taken = {o.attributes["sym_name"].value for o in operations if "sym_name" in o.attributes}
    number = 0
    while f"{base}_{number}" in taken:
        number += 1
    return f"{base}_{number}"


def matrix(factor: Factor, k: int) -> ir.Value:
    """The activation as `[M, K]`, or the images of a convolution as `[N, H * W * C]`."""
    if factor.window is not None:
        return _collapse(factor.value, [[0], [1, 2, 3]])
    rank = len(factor.source_axes)
    if "b" in factor.source_axes:
        depth = [i for i, a in enumerate(factor.source_axes) if a in "gk"]
        return factor.value if len(depth) == 1 else _collapse(factor.value, [[0], [1], depth])
    rows = [i for i, a in enumerate(factor.source_axes) if a == "m"]
    if rank == 2 and len(rows) == 1:
        return factor.value
    source = _expanded_from(factor.value, k)
    if source is not None:
        return source
    groups = [rows, [i for i in range(rank) if i not in rows]]
    if not rows:
        made: ir.Value = _expand(factor.value, [[1, k]])
        return made
    return _collapse(factor.value, groups)


def _expanded_from(value: ir.Value, k: int) -> ir.Value | None:
    """The matrix `[M, k]` of which `value` is a view with K split, None if it is not such a view. IREE folds the pair
    of reshapes too, but only after it has formed dispatches around the ops between them."""
    made = made_by(value, "tensor.expand_shape")
    if made is None:
        return None
    source = made.operands[0]
    kind = ir.RankedTensorType(source.type)
    return source if kind.rank == 2 and kind.get_dim_size(1) == k else None


def aligned(operand: Operand) -> ir.Value:
    """The tensor of an operand with each axis of the kernel at most once, in `ORDER`."""
    value = merged(operand)
    letters = [x for i, x in enumerate(operand.source_axes) if i == 0 or operand.source_axes[i - 1] != x]
    order = sorted(range(len(letters)), key=lambda i: ORDER.index(letters[i]))
    return _transposed(value, order)


def merged(operand: Operand) -> ir.Value:
    """The tensor of an operand with adjacent axes collapsed if they follow the same axis of the kernel."""
    groups: list[list[int]] = []
    for i, letter in enumerate(operand.source_axes):
        if i and operand.source_axes[i - 1] == letter:
            groups[-1].append(i)
        else:
            groups.append([i])
    return operand.value if len(groups) == len(operand.source_axes) else _collapse(operand.value, groups)


def _transposed(value: ir.Value, order: list[int]) -> ir.Value:
    if order == sorted(order):
        return value
    known = constant_array(value)
    if known is not None and known.dtype in (np.float32, np.float16, np.int32, np.int8):
        array = np.ascontiguousarray(known.transpose(order))
        kind = ir.RankedTensorType.get(array.shape, value.type.element_type)
        return arith.constant(kind, ir.DenseElementsAttr.get(array, type=kind))
    kind = ir.RankedTensorType(value.type)
    sizes = [
        tensor.dim(value, arith.constant(ir.IndexType.get(), i)) if kind.is_dynamic_dim(i) else kind.get_dim_size(i)
        for i in order
    ]
    out = tensor.empty(sizes, kind.element_type)
    return linalg.transpose(value, outs=[out], permutation=order).results[0]


def _collapse(value: ir.Value, groups: list[list[int]]) -> ir.Value:
    kind = ir.RankedTensorType(value.type)
    shape: list[int | None] = []
    for group in groups:
        size: int | None = 1
        for axis in group:
            size = None if size is None or kind.is_dynamic_dim(axis) else size * kind.get_dim_size(axis)
        shape.append(size)
    return tensor.collapse_shape(_tensor(shape, kind.element_type), value, groups)


def _expand(value: ir.Value, sizes: list[list[int]]) -> ir.Value:
    flat = [s for axis in sizes for s in axis]
    groups, at = [], 0
    for axis in sizes:
        groups.append(list(range(at, at + len(axis))))
        at += len(axis)
    return tensor.expand_shape(_tensor(flat, value.type.element_type), value, groups, [], flat)


def _as_result(value: ir.Value, kind: ir.Type, kernel: Kernel, rows: list[ir.Value]) -> ir.Value:
    """Reshape the dispatch's result `[M, N]` to the program's result, which may have several axes of rows."""
    if value.type == kind:
        return value
    if kernel.planes:
        shape = [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(4)]
        first: list[ir.Value] = [_first_size(value)] if shape[0] is None else []
        static = [ir.ShapedType.get_dynamic_size() if s is None else s for s in shape]
        return tensor.expand_shape(kind, value, [[0], [1], [2, 3]], first, static)
    count = len(kernel.row_sizes)
    assert kernel.batch is None or kernel.batch.target is None, "rows that are at their places have the result's type"
    if count == 0:
        return tensor.collapse_shape(kind, value, [[0, 1]])
    if count == 1:
        return tensor.CastOp(kind, value).result
    sizes: list[ir.Value | int] = []
    # If several axes of rows are dynamic, their sizes are those of the view that made them.
    view = next((op for op in reversed(kernel.operations) if op.name == "tensor.expand_shape"), None)
    given = iter(list(view.operands)[1:] if view is not None and kernel.row_sizes.count(None) > 1 else [])
    for size in kernel.row_sizes:
        if size is not None:
            sizes.append(size)
            continue
        known = next(given, None)
        if known is None:
            known = arith.divui(rows[0], arith.constant(ir.IndexType.get(), _known_rows(kernel)))
        sizes.append(known)
    dynamic = ir.ShapedType.get_dynamic_size()
    static = [s if isinstance(s, int) else dynamic for s in sizes] + [kernel.columns]
    values = [s for s in sizes if not isinstance(s, int)]
    return tensor.expand_shape(kind, value, [list(range(count)), [count]], values, static)


def _known_rows(kernel: Kernel) -> int:
    total = 1
    for size in kernel.row_sizes:
        total *= size or 1
    return total


def _erase(kernel: Kernel) -> None:
    """Erase the ops of the group, last first, and a constant weight that nothing else reads."""
    weight = kernel.rhs.value
    for op in reversed(kernel.operations):
        if any(list(result.uses) for result in op.results):
            raise AssertionError(f"{op.name} of the group is still in use")
        op.erase()
    constant = made_by(weight, "arith.constant")
    if constant is not None and not list(weight.uses):
        constant.erase()
