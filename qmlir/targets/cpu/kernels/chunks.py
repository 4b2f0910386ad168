"""The distribution of a kernel's chunks over threads.

A kernel is a function of a chunk's number, and reports how many chunks there are and about how long all of them take;
it does not know how chunks are assigned to threads. A kernel is one workgroup, which shares its chunks with the threads
of the process's team (qmlir/targets/cpu/threads); on systems without a team its chunks are divided among several
workgroups, which IREE's task system distributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....core.mlir import arith, func, ir, passmanager, stream
from ..threads.share import by_turns, share
from . import emit as e

# IREE's task system takes tens of microseconds to distribute a dispatch, and a fraction of one for each workgroup.
_SHARED_NS, _MOST_WORKGROUPS = 40_000, 256

# A number that depends on the sizes of a call (each an int, or an index if it is dynamic).
OfSizes = Callable[..., e.Index]
# Emits the work of one chunk, given its number, the sizes, and the buffer of each tensor.
ChunkWork: TypeAlias = "Callable[[ir.Value, list[e.Index], list[e.Buffer]], None]"


@dataclass(frozen=True)
class Chunked:
    """A kernel: the `count` of its chunks, the `work` of one, and the `cost` of all in nanoseconds on one thread."""

    count: OfSizes
    work: ChunkWork
    cost: OfSizes
    first: Callable[[], None] | None = None  # emits code that runs before the chunks of a call
    shared: bool = True  # whether a team shares the chunks; else there are several workgroups


def executable(
    name: str, sizes: Sequence[int | None], tensors: Sequence[ir.Type], kernel: Chunked,
    axes: Sequence[Sequence[int]] | None = None,
) -> str:  # fmt: skip
    """Create a `stream.executable` at the insertion point that computes all chunks of one call; return its entry point,
    whose first operand is the address of a team (i64), followed by the dynamic sizes.

    Args:
        sizes: the sizes that the kernel depends on, None for dynamic ones, which are operands of the dispatch.
        tensors: types of the operands and of the result, each a binding.
        axes: for each tensor, the index in `sizes` of each of its dynamic axes; if None, the first for all.
    """
    index = ir.IndexType.get()
    made = stream.ExecutableOp(name, sym_visibility="private")
    with ir.InsertionPoint(made.regions[0].blocks.append()):
        export = stream.ExecutableExportOp(name, name, sym_visibility="public")
        block = export.regions[0].blocks.append(*[index for size in sizes if size is None])
        with ir.InsertionPoint(block):
            one = e.index(1)
            groups = one if kernel.shared else e.index(_workgroups(kernel, _all_sizes(sizes, block.arguments)))
            stream.ReturnOp([groups, one, one])
        inner = ir.Operation.create("builtin.module", regions=1)
        module = inner.regions[0].blocks.append()
        with ir.InsertionPoint(module):
            _function(name, module, sizes, [_Binding.of(t, i, axes) for i, t in enumerate(tensors)], kernel)
        # IREE expands math ops in the entry point only, and there are no functions erf and tanh to call.
        passmanager.PassManager.parse("builtin.module(func.func(iree-codegen-math-transform))").run(inner)
        stream.ExecutableEndOp()
    return f"@{name}::@{name}"


def _workgroups(kernel: Chunked, sizes: Sequence[e.Index]) -> e.Index:
    """The number of workgroups: one if the work is too short to be distributed."""
    long = e.at_most(_SHARED_NS, kernel.cost(*sizes))
    most = e.index(e.minimum(kernel.count(*sizes), _MOST_WORKGROUPS))
    return arith.select(long, most, e.index(1))


def _all_sizes(sizes: Sequence[int | None], given: Sequence[ir.Value]) -> list[e.Index]:
    """The sizes of a call, with the dynamic ones taken from `given`."""
    values = iter(given)
    return [next(values) if size is None else size for size in sizes]


@dataclass(frozen=True)
class _Binding:
    """A tensor of a call. `axes`: for each dynamic axis, in order, the index of its size."""

    kind: ir.Type
    axes: tuple[int, ...]

    @classmethod
    def of(cls, t: ir.Type, number: int, axes: Sequence[Sequence[int]] | None) -> _Binding:
        kind = ir.RankedTensorType(t)
        dynamic = sum(kind.is_dynamic_dim(d) for d in range(kind.rank))
        return cls(kind, tuple(axes[number]) if axes is not None else (0,) * dynamic)

    def shape(self, sizes: Sequence[e.Index]) -> tuple[e.Index, ...]:
        dynamic = iter(self.axes)
        kind = self.kind
        return tuple(sizes[next(dynamic)] if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank))

    def memory(self, argument: ir.Value, sizes: Sequence[e.Index]) -> ir.Value:
        """The binding as a memref."""
        kind = ir.MemRefType.get(list(self.kind.shape), self.kind.element_type)
        dynamic = [e.index(sizes[axis]) for axis in self.axes]
        return stream.BindingSubspanOp(kind, argument, e.index(0), dynamic).result


def _function(
    name: str, module: ir.Block, sizes: Sequence[int | None], tensors: Sequence[_Binding], kernel: Chunked
) -> None:
    i64, index = e.integer(64), ir.IndexType.get()
    dynamic = sum(size is None for size in sizes)
    bindings = [ir.Type.parse("!stream.binding")] * len(tensors)
    function = func.FuncOp(name, ir.FunctionType.get([i64, *[index] * dynamic, *bindings], []))

    def body(number: ir.Value, words: list[ir.Value]) -> None:
        known = _all_sizes(sizes, [arith.index_cast(index, word) for word in words[len(tensors) :]])
        buffers = [
            e.Buffer(e.address(word), t.kind.element_type, t.shape(known))
            for word, t in zip(words, tensors, strict=False)
        ]
        kernel.work(number, known, buffers)

    with ir.InsertionPoint(function.add_entry_block()):
        team, *arguments = function.arguments
        given, arguments = arguments[:dynamic], arguments[dynamic:]
        known = _all_sizes(sizes, given)
        words = [e.address_of(t.memory(a, known)) for a, t in zip(arguments, tensors, strict=True)]
        words += [arith.index_cast(i64, size) for size in given]
        if kernel.first is not None:
            kernel.first()
        total, cost = (arith.index_cast(i64, e.index(of(*known))) for of in (kernel.count, kernel.cost))
        if kernel.shared:
            share(name, module, team, total, cost, words, body)
        else:
            mine, groups = stream.dispatch_workgroup_id(0), stream.dispatch_workgroup_count(0)
            by_turns(name, module, mine, groups, total, words, body)
        func.ReturnOp([])
