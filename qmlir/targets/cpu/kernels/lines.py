"""Activations in lines: a copy of them whose rows are whole lines of the cache, for kernels that read rows where they
lie. A line that starts within another is read as two, which halves what the second-level cache gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.mlir import arith, flow, ir, tensor
from ....ir.attributes import entry_points
from ....ir.walk import behind
from ....kernels.outline import function_of, once, unused_name
from ..threads.cost import nanoseconds
from ..threads.program import team_of
from . import emit as e
from .chunks import Chunked, executable

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_ROWS = 32  # of a chunk
_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.cast")


def may_start_anywhere(value: ir.Value) -> bool:
    """Whether a tensor is an argument of the program, or a view of one: the program's own start with a line."""
    return isinstance(behind(value, *_VIEWS).owner, ir.Block)


def in_lines(rows: ir.Value, flipped: bool, before: OpLike) -> ir.Value:
    """The codes `[M, K]` as `[M, K padded to lines]`, zeros behind K, at the insertion point; with `flipped` their top
    bit is inverted. `before`: an op of the function behind the insertion point."""
    kind = ir.RankedTensorType(rows.type)
    k, dynamic = kind.get_dim_size(1), kind.is_dynamic_dim(0)
    count = None if dynamic else kind.get_dim_size(0)
    padded = -(-k // e.LINE) * e.LINE
    out = ir.RankedTensorType.get([kind.shape[0], padded], kind.element_type)

    def work(number: ir.Value, sizes: list[e.Index], buffers: list[e.Buffer]) -> None:
        (size,), (source, target) = sizes, buffers
        first = e.multiply(number, _ROWS)
        with e.loop(0, e.minimum(_ROWS, e.subtract(size, first))) as turn:
            _copy_row(source, target, e.add(first, turn.index), k, flipped)

    def cost(size: e.Index) -> e.Index:
        return e.multiply(size, nanoseconds(0, 2 * padded))

    function = function_of(before)
    with ir.InsertionPoint(function):
        name = unused_name(function, "lines")
        chunked = Chunked(lambda size: e.divide_up(size, _ROWS), work, cost)
        entry = executable(name, [count], [kind, out], chunked)
    entry = once(function.parent, name, entry)
    sizes = [tensor.dim(rows, arith.constant(ir.IndexType.get(), 0))] if dynamic else []
    call = flow.DispatchOp([out], sizes, entry_points(entry), [team_of(before), *sizes, rows], sizes, sizes)
    return call.results[0]


def _copy_row(source: e.Buffer, target: e.Buffer, row: e.Index, k: int, flipped: bool) -> None:
    i8 = e.integer(8)

    def step(at: e.Index, mask: ir.Value | None = None) -> None:
        codes = e.load_vector(source, [row, at], e.LINE, mask)
        if flipped:
            codes = arith.xori(codes, e.splat(-128, e.LINE, i8))
            codes = codes if mask is None else arith.select(mask, codes, e.splat(0, e.LINE, i8))
        e.store_vector(codes, target, [row, at])

    whole = k // e.LINE * e.LINE
    with e.loop(0, whole, e.LINE) as turn:
        step(turn.index)
    if k > whole:
        step(whole, e.first_lanes(k - whole, e.LINE))
