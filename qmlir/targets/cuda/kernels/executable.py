"""A kernel as a `hal.executable.source`, which IREE only lowers: its entry, its buffers, its grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...._mlir import arith, func, hal, ir
from ....kernels import emit as e

_MEMORY = "#hal.descriptor_type<storage_buffer>"
_READ_ONLY = 1  # of hal.descriptor_flags


@dataclass(frozen=True)
class Launch:
    """`blocks` workgroups of `threads` threads: a number that depends on the number of rows."""

    threads: int
    blocks: Callable[[e.Index], e.Index]


# Emits a kernel's body: the number of rows, and a memref for each tensor.
Body = Callable[[e.Index, list[Any]], None]


def executable(name: str, rows: int | None, tensors: Sequence[Any], launch: Launch, body: Body) -> str:
    """An executable at the insertion point; returns its entry point, which takes the number of rows as its first
    operand (i32) where it is dynamic.

    Args:
        rows: how many, None when they are an operand of the dispatch.
        tensors: types of the operands and of the result, each a binding.
    """
    kinds = [ir.RankedTensorType(t) for t in tensors]
    read = "#hal.pipeline.binding<storage_buffer, ReadOnly>"
    bindings = [*[read] * (len(kinds) - 1), "#hal.pipeline.binding<storage_buffer>"]
    constants = "constants = 1, " if rows is None else ""
    layout = ir.Attribute.parse(f"#hal.pipeline.layout<{constants}bindings = [{', '.join(bindings)}]>")
    made = hal.ExecutableSourceOp(name, sym_visibility="private")
    with ir.InsertionPoint(made.regions[0].blocks.append()):
        export = hal.ExecutableExportOp(name, layout, ordinal=ir.IntegerAttr.get(ir.IndexType.get(), 0))
        workload = [ir.IndexType.get()] if rows is None else []
        block = export.regions[0].blocks.append(ir.Type.parse("!hal.device"), *workload)
        with ir.InsertionPoint(block):
            size = block.arguments[1] if rows is None else rows
            hal.ReturnOp([e.index(launch.blocks(size)), e.index(1), e.index(1)])
        module = ir.Operation.create("builtin.module", regions=1)
        with ir.InsertionPoint(module.regions[0].blocks.append()):
            _function(name, rows, kinds, layout, launch, body)
        hal.ExecutableSourceEndOp()
    return f"@{name}::@{name}"


def _function(name: str, rows: int | None, kinds: list[Any], layout: Any, launch: Launch, body: Body) -> None:
    function = func.FuncOp(name, ir.FunctionType.get([], []))
    function.attributes["translation_info"] = ir.Attribute.parse(
        "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline "
        f"workgroup_size = [{launch.threads}, 1, 1] subgroup_size = 32>"
    )
    with ir.InsertionPoint(function.add_entry_block()):
        size: e.Index = rows
        if rows is None:
            first = ir.IntegerAttr.get(ir.IndexType.get(), 0)
            word = hal.InterfaceConstantLoadOp(e.integer(32), layout, first).result
            size = arith.index_castui(ir.IndexType.get(), word)
        buffers = [_buffer(layout, i, kind, size, i < len(kinds) - 1) for i, kind in enumerate(kinds)]
        body(size, buffers)
        func.ReturnOp([])


def _buffer(layout: Any, number: int, kind: Any, rows: e.Index, read_only: bool) -> Any:
    memory = ir.MemRefType.get(list(kind.shape), kind.element_type, memory_space=ir.Attribute.parse(_MEMORY))
    dynamic = [rows for d in range(kind.rank) if kind.is_dynamic_dim(d)]
    more: dict[str, Any] = {"descriptor_flags": ir.IntegerAttr.get(e.integer(32), _READ_ONLY)} if read_only else {}
    return hal.InterfaceBindingSubspanOp(
        memory, layout, number, dynamic, byte_offset=e.index(0), alignment=64, **more
    ).result


def workgroup_id() -> Any:
    return hal.InterfaceWorkgroupIDOp(0).result
