"""Who does which piece of the work.

A kernel is a function of a chunk's number and says how many chunks there are, and about how long all of them take;
nothing else in it knows how chunks get to threads. Here a kernel is one workgroup, which shares its chunks with the
threads of the process's team (qmlir/targets/cpu/threads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...._mlir import PassManager, arith, func, ir, stream
from ..threads.share import share
from . import emit as e

# A number that depends on the number of rows (an int, or an index where it is dynamic).
OfRows = Callable[[e.Index], e.Index]
# Emits the work of one chunk: (chunk, rows, buffers).
Work = Callable[[Any, e.Index, list[e.Buffer]], None]


@dataclass(frozen=True)
class Chunked:
    """A kernel: `count` chunks, `work` for each, `cost` nanoseconds on one thread for all."""

    count: OfRows
    work: Work
    cost: OfRows


def executable(name: str, rows: int | None, tensors: Sequence[Any], kernel: Chunked) -> str:
    """A `stream.executable` at the insertion point that does all chunks of one call; returns its entry point, whose
    first operand is the address of a team (i64), the second the number of rows where it is dynamic.

    Args:
        rows: how many, None when they are an operand of the dispatch.
        tensors: types of the operands and of the result, each a binding.
    """
    index = ir.IndexType.get()
    made = stream.ExecutableOp(name, sym_visibility="private")
    with ir.InsertionPoint(made.regions[0].blocks.append()):
        export = stream.ExecutableExportOp(name, name, sym_visibility="public")
        block = export.regions[0].blocks.append(*([index] if rows is None else []))
        with ir.InsertionPoint(block):
            one = e.index(1)
            stream.ReturnOp([one, one, one])
        inner = ir.Operation.create("builtin.module", regions=1)
        module = inner.regions[0].blocks.append()
        with ir.InsertionPoint(module):
            _function(name, module, rows, tensors, kernel)
        # IREE does this for the entry point only, and has no erf or tanh to call.
        PassManager.parse("builtin.module(func.func(iree-codegen-math-transform))").run(inner)
        stream.ExecutableEndOp()
    return f"@{name}::@{name}"


def _function(name: str, module: Any, rows: int | None, tensors: Sequence[Any], kernel: Chunked) -> None:
    i64, index = e.integer(64), ir.IndexType.get()
    binding = ir.Type.parse("!stream.binding")
    sizes = [index] if rows is None else []
    function = func.FuncOp(name, ir.FunctionType.get([i64, *sizes, *[binding] * len(tensors)], []))
    kinds = [ir.RankedTensorType(t) for t in tensors]

    def body(number: Any, words: list[Any]) -> None:
        size = rows if rows is not None else arith.index_cast(index, words[-1])
        buffers = [
            e.Buffer(
                e.address(word),
                kind.element_type,
                tuple(size if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)),
            )
            for word, kind in zip(words, kinds, strict=False)
        ]
        kernel.work(number, size, buffers)

    with ir.InsertionPoint(function.add_entry_block()):
        team, *arguments = function.arguments
        size = arguments.pop(0) if rows is None else rows
        zero = e.index(0)
        words = []
        for argument, kind in zip(arguments, kinds, strict=True):
            dynamic = [size for d in range(kind.rank) if kind.is_dynamic_dim(d)]
            memory = ir.MemRefType.get(list(kind.shape), kind.element_type)
            words.append(e.address_of(stream.BindingSubspanOp(memory, argument, zero, dynamic).result))
        if rows is None:
            words.append(arith.index_cast(i64, size))
        total, cost = (arith.index_cast(i64, e.index(of(size))) for of in (kernel.count, kernel.cost))
        share(name, module, team, total, cost, words, body)
        func.ReturnOp([])
