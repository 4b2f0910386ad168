"""Activations in lines: a copy whose rows are whole cache lines, for kernels that read rows in place. An unaligned
line is read as two, which halves the bandwidth of the second-level cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.mlir import arith, flow, ir, tensor
from ....ir.attributes import entry_points
from ....ir.walk import behind
from ....kernels.outline import function_of, matrix, once, unused_name
from ..threads.cost import nanoseconds
from ..threads.program import team_of
from . import emit as e
from .activations import CopiedRows
from .chunks import Chunked, executable

if TYPE_CHECKING:
    from ....kernels.description import Kernel

_ROWS = 32  # per chunk
_VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.cast")


def may_start_anywhere(value: ir.Value) -> bool:
    """Whether a tensor may be unaligned: an argument of the program, or a view of one. Others start with a line."""
    return isinstance(behind(value, *_VIEWS).owner, ir.Block)


def in_lines(kernel: Kernel, lanes: int, tile: int) -> ir.Value:
    """Copy a kernel's activations, in front of its last op, to `[M, K padded to lines]` signed codes, zeros behind K.
    With a `tile` of more than one row: `[M / tile, lines of K, tile, line]`, where a step along K reads neighbours."""
    last = kernel.operations[-1]
    function = function_of(last)
    padded = -(-kernel.k // e.LINE) * e.LINE

    def work(number: ir.Value, sizes: list[e.Index], buffers: list[e.Buffer]) -> None:
        (size,), (source, target) = sizes, buffers
        rows = CopiedRows(kernel, lanes, source, None, kernel.k, tile)
        first = e.multiply(number, _ROWS)
        with e.loop(0, e.minimum(_ROWS, e.subtract(size, first))) as turn:
            row = e.add(first, turn.index)
            start = e.subtract(row, e.remainder(row, tile))
            place = e.add(target.offset([start, 0]), e.multiply(e.remainder(row, tile), e.LINE))
            rows.copy([row], 0, e.at(target.address, place), kernel.k, lambda total, group: None)

    def cost(size: e.Index) -> e.Index:
        return e.multiply(size, nanoseconds(0, 2 * padded))

    with last.location, ir.InsertionPoint(last):
        source = matrix(kernel.lhs, kernel.k)
        kind = ir.RankedTensorType(source.type)
        zero = arith.constant(ir.IndexType.get(), 0)
        sizes = [tensor.dim(source, zero)] if kernel.m is None else []
        height = ir.ShapedType.get_dynamic_size() if kernel.m is None else -(-kernel.m // tile) * tile
        out = ir.RankedTensorType.get([height, padded], kind.element_type)
    with last.location, ir.InsertionPoint(function):
        name = unused_name(function, "lines")
        chunked = Chunked(lambda size: e.divide_up(size, _ROWS), work, cost)
        entry = executable(name, [kernel.m], [kind, out], chunked)
    entry = once(function.parent, name, entry)
    with last.location, ir.InsertionPoint(last):
        call = flow.DispatchOp([out], sizes, entry_points(entry), [team_of(last), *sizes, source], sizes, sizes)
    return call.results[0]
