"""Who does which piece of the work.

A kernel is a function of a chunk's number and says how many chunks there are; nothing else in it knows how chunks get
to threads. Here each chunk is a workgroup of IREE's dispatch, which its task system hands to its threads; whoever
brings another way of sharing work changes this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...._mlir import func, ir, stream
from . import emit as e

# The number of chunks, from the number of rows (an int, or an index where it is dynamic).
Count = Callable[[e.Index], e.Index]
# Emits the work of one chunk: (chunk, rows, buffers as memrefs).
Work = Callable[[Any, e.Index, list[Any]], None]


def executable(name: str, rows: int | None, tensors: Sequence[Any], count: Count, work: Work) -> str:
    """A `stream.executable` at the insertion point that does all chunks of one call; returns its entry point.

    Args:
        rows: how many, None when they are the dispatch's first operand.
        tensors: types of the operands and of the result, each a binding.
    """
    index = ir.IndexType.get()
    sizes = [index] if rows is None else []
    made = stream.ExecutableOp(name, sym_visibility="private")
    with ir.InsertionPoint(made.regions[0].blocks.append()):
        export = stream.ExecutableExportOp(name, name, sym_visibility="public")
        block = export.regions[0].blocks.append(*sizes)
        with ir.InsertionPoint(block):
            total = e.index(count(block.arguments[0] if rows is None else rows))
            one = e.index(1)
            stream.ReturnOp([total, one, one])
        inner = ir.Operation.create("builtin.module", regions=1)
        with ir.InsertionPoint(inner.regions[0].blocks.append()):
            _function(name, rows, tensors, work)
        stream.ExecutableEndOp()
    return f"@{name}::@{name}"


def _function(name: str, rows: int | None, tensors: Sequence[Any], work: Work) -> None:
    binding = ir.Type.parse("!stream.binding")
    sizes = [ir.IndexType.get()] if rows is None else []
    function = func.FuncOp(name, ir.FunctionType.get([*sizes, *[binding] * len(tensors)], []))
    with ir.InsertionPoint(function.add_entry_block()):
        arguments = list(function.arguments)
        size = arguments.pop(0) if rows is None else rows
        zero = e.index(0)
        buffers = []
        for argument, t in zip(arguments, tensors, strict=True):
            kind = ir.RankedTensorType(t)
            dynamic = [size for d in range(kind.rank) if kind.is_dynamic_dim(d)]
            buffer = ir.MemRefType.get(list(kind.shape), kind.element_type)
            buffers.append(stream.BindingSubspanOp(buffer, argument, zero, dynamic).result)
        work(stream.DispatchWorkgroupIDOp(0).result, size, buffers)
        func.ReturnOp([])
