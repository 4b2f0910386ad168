"""An executable of one kernel that IREE only lowers: its function is for one thread, and IREE distributes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...core.faults import Fault
from ...core.mlir import OpLike, arith, func, hal, ir, passmanager
from . import emit as e
from .machine import Machine
from .shared_memory import SHARED_BYTES, pool

_READ_ONLY = 1  # of hal.descriptor_flags


@dataclass(frozen=True)
class RuntimeSize:
    """A size that is known at run time: `times` the number of rows, or of tokens that rows are gathered from."""

    times: int = 1
    tokens: bool = False


@dataclass(frozen=True)
class View:
    """A tensor of the dispatch as the kernel reads it: sizes (None: the dynamic number of rows) and an element type,
    which may be a vector of the tensor's elements."""

    shape: tuple[int | RuntimeSize | None, ...]
    element: ir.Type

    @classmethod
    def of(cls, tensor: ir.Type) -> View:
        """The view of a tensor type; one-byte floats are bytes, which the kernel interprets."""
        kind = ir.RankedTensorType(tensor)
        sizes = [None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
        return cls(tuple(sizes), e.integer(8) if e.bits(kind.element_type) == 8 else kind.element_type)

    @classmethod
    def of_words(cls, shape: tuple[int | RuntimeSize | None, ...], words: int) -> View:
        """A view whose elements are loads of `words` 32-bit words."""
        return cls(shape, e.integer(32) if words == 1 else e.vector_of(words, e.integer(32)))

    @classmethod
    def of_vectors(cls, shape: Sequence[int | RuntimeSize | None], lanes: int, element: ir.Type) -> View:
        """A view of `shape` elements as vectors of `lanes` along the last axis."""
        if lanes == 1:
            return cls(tuple(shape), element)
        last = shape[-1]
        assert isinstance(last, int)
        return cls((*shape[:-1], last // lanes), e.vector_of(lanes, element))


@dataclass(frozen=True)
class Launch:
    """The launch of a kernel. `threads`: of a workgroup; `grid`: the numbers of workgroups for a number of rows;
    `attributes`: i32 attributes of the device function."""

    threads: int
    machine: Machine
    grid: Callable[[e.Index], tuple[e.Index, e.Index, e.Index]]
    attributes: Mapping[str, int] = field(default_factory=dict)


# Called with the number of rows and a memref for each view.
KernelBody: TypeAlias = "Callable[[e.Index, list[ir.Value]], None]"


@dataclass(frozen=True)
class KernelFunction:
    """A kernel of an executable. Its operands are the number of rows (i32) if `rows` is None, the number of tokens if
    `tokens`, and the views in order; the last `results` views are results."""

    rows: int | None
    views: Sequence[View]
    launch: Launch
    body: KernelBody
    tokens: bool = False
    results: int = 1

    @property
    def layout(self) -> ir.Attribute:
        """The layout of the operands, which all functions of an executable share. Bindings are indirect, like those of
        IREE's own executables: otherwise IREE records all commands of the program again in every call."""
        read = '#hal.pipeline.binding<storage_buffer, "ReadOnly|Indirect">'
        written = "#hal.pipeline.binding<storage_buffer, Indirect>"
        bindings = ", ".join([*[read] * (len(self.views) - self.results), *[written] * self.results])
        count = int(self.rows is None) + self.tokens
        constants = f"constants = {count}, " if count else ""
        return ir.Attribute.parse(f"#hal.pipeline.layout<{constants}bindings = [{bindings}], flags = Indirect>")


FAULTS = (
    Fault(
        "IREE binds several tensors of a `stream.executable` as offsets into one buffer, which it cannot lower for "
        "memrefs of vectors on SPIR-V.",
        canary="vectors_at_offsets",
    ),
)


def executable(name: str, function: KernelFunction, *more: tuple[int, KernelFunction]) -> str:
    """Build a `hal.executable.source` at the insertion point; returns the text of its entry point.

    `more`: further functions with the same operands, each with the number of rows above which it is used, in ascending
    order. The host chooses one of the functions when it launches the kernel; that is one dispatch, whose entry point is
    the function for the fewest rows.

    Not a `stream.executable`: IREE 3.13 may bind several of its tensors as offsets into one buffer, which it cannot
    lower for memrefs of vectors on SPIR-V. With an explicit layout, each tensor has its own buffer.
    """
    layout = function.layout
    functions = [function, *(f for _, f in more)]
    names = [name, *(f"{name}_above_{rows}" for rows, _ in more)]
    exports: list[OpLike] = []
    made = hal.ExecutableSourceOp(name, sym_visibility="private")
    with ir.InsertionPoint(made.regions[0].blocks.append()):
        for i, f in enumerate(functions):
            assert f.layout == layout, "functions of one executable have the same operands"
            exports.append(_export(names, i, f, more[i][0] if i < len(more) else None))
        inner = ir.Operation.create("builtin.module", regions=1)
        with ir.InsertionPoint(inner.regions[0].blocks.append()):
            bodies = [_function(own, f) for own, f in zip(names, functions, strict=True)]
        if function.launch.machine.pooled:
            for export, used in zip(exports, pool(inner, bodies), strict=True):
                export.operation.attributes[SHARED_BYTES] = ir.IntegerAttr.get(ir.IndexType.get(), used)
        if not function.launch.machine.library:  # to polynomials: SPIR-V has no erf, and AMD's libraries are not used
            passmanager.PassManager.parse("builtin.module(func.func(iree-codegen-math-transform))").run(inner)
        hal.ExecutableSourceEndOp()
    return f"@{name}::@{name}"


def _export(names: Sequence[str], number: int, function: KernelFunction, most: int | None) -> OpLike:
    """Export an entry point; if it is for at most `most` rows, the next one is its fallback for more."""
    index, device = ir.IndexType.get(), ir.Type.parse("!hal.device")
    fallback = {} if most is None else {"condition_fallback": ir.FlatSymbolRefAttr.get(names[number + 1])}
    ordinal = ir.IntegerAttr.get(index, number)
    export = hal.ExecutableExportOp(names[number], function.layout, ordinal=ordinal, **fallback)
    workload = [index] if function.rows is None else []
    block = export.regions[0].blocks.append(device, *workload)
    with ir.InsertionPoint(block):
        size = block.arguments[1] if function.rows is None else function.rows
        hal.ReturnOp([e.index(n) for n in function.launch.grid(size)])
    if most is not None:
        block = export.regions[1].blocks.append(device, index)
        with ir.InsertionPoint(block):
            few = arith.cmpi(arith.CmpIPredicate.ule, block.arguments[1], e.index(most))
            hal.ReturnOp([few])
    return export


def _function(name: str, made: KernelFunction) -> OpLike:
    function = func.FuncOp(name, ir.FunctionType.get([], []))
    function.attributes["translation_info"] = ir.Attribute.parse(
        "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline "
        f"workgroup_size = [{made.launch.threads}, 1, 1] subgroup_size = {made.launch.machine.subgroup}>"
    )
    for key, value in made.launch.attributes.items():
        function.attributes[key] = ir.IntegerAttr.get(e.integer(32), value)
    with ir.InsertionPoint(function.add_entry_block()):
        layout, dynamic = made.layout, made.rows is None
        size: e.Index = _constant(layout, 0) if made.rows is None else made.rows
        available: e.Index = _constant(layout, int(dynamic)) if made.tokens else 0
        read = len(made.views) - made.results
        made.body(size, [_buffer(layout, i, view, (size, available), i < read) for i, view in enumerate(made.views)])
        func.ReturnOp([])
    return function


def _constant(layout: ir.Attribute, number: int) -> ir.Value:
    ordinal = ir.IntegerAttr.get(ir.IndexType.get(), number)
    loaded = hal.InterfaceConstantLoadOp(e.integer(32), layout, ordinal).result
    return e.as_index(loaded)


def _buffer(layout: ir.Attribute, number: int, view: View, known: tuple[e.Index, e.Index], read_only: bool) -> ir.Value:
    dynamic = ir.ShapedType.get_dynamic_size()
    space = ir.Attribute.parse("#hal.descriptor_type<storage_buffer>")
    sizes = [s if isinstance(s, int) else dynamic for s in view.shape]
    memory = ir.MemRefType.get(sizes, view.element, memory_space=space)
    wanted = [s or RuntimeSize() for s in view.shape if not isinstance(s, int)]
    counts = [e.index(e.multiply(known[s.tokens], s.times)) for s in wanted]
    more = {"descriptor_flags": ir.IntegerAttr.get(e.integer(32), _READ_ONLY)} if read_only else {}
    return hal.InterfaceBindingSubspanOp(
        memory, layout, number, counts, byte_offset=e.index(0), alignment=64, **more
    ).result
