"""Run whole compiled CUDA programs: the host code in Python, each dispatch in the PTX interpreter.

IREE compiles a program up to the phase `executable-targets`, where the host function still consists of the stream
dialect's buffers, copies and dispatches, and from there on to PTX. This module executes the host function in place of
the runtime, so that a program with several dispatches, transient buffers and dynamic sizes runs as on a device.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qmlir.core.mlir import ir
from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.grid import run_grid
from qmlir.emulation.cuda.instructions import PtxError, PtxModule
from qmlir.emulation.cuda.memory import GlobalMemory
from qmlir.emulation.cuda.text import parse
from qmlir.targets import resolve
from qmlir.targets.gpu_kernels.shared_memory import SHARED_BYTES

from .host_ir import affine, constant_bytes, predicate, resources, segments
from .phases import host_stage
from .resources import ELEMENTS, BufferView, Dispatch, Failure, Resource


@dataclass
class Compiled:
    """A CUDA program: the host IR at the phase `executable-targets`, and the device code."""

    host: str
    ptx: PtxModule
    text: str

    def run(self, *arguments: Array, function: str = "main", **options: Any) -> tuple[list[Array], list[Dispatch]]:
        """Return the results, and the dispatches in order. Options are those of `run_grid`."""
        with ir.Context() as context, ir.Location.unknown():
            context.allow_unregistered_dialects = True
            module = ir.Module.parse(self.host)
            host = _Host(module, self.ptx, options, resources(self.host))
            host.initialize()
            views = [BufferView(Resource.of(f"argument {i}", a), a.shape, "") for i, a in enumerate(arguments)]
            results = host.call(function, views)
            return [r.array() for r in results], host.dispatches


def compile_program(configured: str, flags: Sequence[str] = ()) -> Compiled:
    """Compile the text of a program at the level `configured` (`artifact.source("configured")`)."""
    with tempfile.TemporaryDirectory() as folder:
        host = host_stage(configured, [f"--iree-hal-dump-executable-binaries-to={folder}", *flags])
        texts = [f.read_text() for f in sorted(Path(folder).glob("*.ptx"))]
    module = PtxModule("", "")
    for text in texts:
        part = parse(text)
        module.target, module.version = part.target, part.version
        module.entries |= part.entries
        module.variables |= part.variables
    return Compiled(host, module, "\n".join(texts))


# ---- operations of the host IR

_COMPARE: list[Callable[[int, int], bool]] = [
    lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b,
    lambda a, b: a >= b,
]  # fmt: skip
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b, "subi": lambda a, b: a - b, "muli": lambda a, b: a * b, "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b, "xori": lambda a, b: a ^ b, "shli": lambda a, b: a << b, "shrui": lambda a, b: a >> b,
    "divui": lambda a, b: a // b, "divsi": lambda a, b: int(a / b), "ceildivui": lambda a, b: -(-a // b),
    "ceildivsi": lambda a, b: -(-a // b), "floordivsi": lambda a, b: a // b, "remui": lambda a, b: a % b,
    "remsi": lambda a, b: a % b, "maxui": max, "minui": min, "maxsi": max, "minsi": min,
}  # fmt: skip
_CASTS = ("index_cast", "index_castui", "extui", "extsi")


@dataclass
class _Host:
    """Interpreter of the functions of one module. In its methods, `values` are those of the running function."""

    module: Any
    ptx: PtxModule
    options: dict[str, Any]
    resources: dict[str, Array]
    globals: dict[str, Any] = field(default_factory=dict)
    dispatches: list[Dispatch] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)

    def initialize(self) -> None:
        for op in self.module.body.operations:
            o = op.operation
            name = str(o.attributes["sym_name"]).strip('"') if "sym_name" in o.attributes else ""
            if o.name == "util.global" and "initial_value" in o.attributes:
                value = o.attributes["initial_value"]
                self.globals[name] = value.value if isinstance(value, ir.IntegerAttr) else None
            elif o.name == "hal.executable":
                self._read_executable(o)
            elif o.name in ("util.func", "func.func"):
                self.functions[name] = o
        for op in self.module.body.operations:
            if op.operation.name == "util.initializer":
                self._run_region(op.operation.regions[0], [])

    def _read_executable(self, executable: Any) -> None:
        for variant in executable.regions[0].blocks[0].operations:
            if variant.operation.name != "hal.executable.variant":
                continue
            for op in variant.operation.regions[0].blocks[0].operations:
                if op.operation.name == "hal.executable.export":
                    self.exports[str(op.operation.attributes["sym_name"]).strip('"')] = op.operation

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        function = self.functions[name]
        declared = re.search(r"iree\.abi\.declaration = .*?\((.*)", str(function.attributes))
        elements = re.findall(r"%input\d+: tensor<((?:[^<>]|<[^<>]*>)*)>", declared.group(1)) if declared else []
        for view, text in zip(arguments, elements, strict=False):
            if isinstance(view, BufferView) and not view.element:
                view.element = text.split("x")[-1]
        return self._run_region(function.regions[0], list(arguments))

    # ---- control flow

    def _run_region(self, region: Any, arguments: list[Any]) -> list[Any]:
        values: dict[Any, Any] = {}
        block = region.blocks[0]
        while True:
            for argument, value in zip(block.arguments, arguments, strict=True):
                values[argument] = value
            step = self._run_block(block, values)
            if isinstance(step, list):
                return step
            block, arguments = step

    def _run_block(self, block: Any, values: dict[Any, Any]) -> Any:
        """Run a block. Returns the operands of its return, or the next block and its arguments."""
        for view in block.operations:
            op = view.operation
            name = op.name
            operands = [values[o] for o in op.operands]
            if name in ("util.return", "hal.return", "func.return", "scf.yield", "stream.yield"):
                return operands
            if name == "cf.br":
                return op.successors[0], operands
            if name == "cf.cond_br":
                sizes = segments(op)
                split = 1 + sizes[1]
                return (op.successors[0], operands[1:split]) if operands[0] else (op.successors[1], operands[split:])
            results = self._run_op(op, name, operands, values)
            for result, value in zip(op.results, results, strict=True):
                values[result] = value
        return []

    def _nested(self, region: Any, arguments: list[Any], values: dict[Any, Any]) -> list[Any]:
        block = region.blocks[0]
        for argument, value in zip(block.arguments, arguments, strict=True):
            values[argument] = value
        done = self._run_block(block, values)
        if not isinstance(done, list):
            raise PtxError("branches inside of a nested region")
        return done

    def _run_op(self, op: Any, name: str, operands: list[Any], values: dict[Any, Any]) -> list[Any]:
        dialect, _, short = name.partition(".")
        if dialect == "arith":
            return [self._arith(op, short, operands)]
        handler: Callable[..., list[Any]] | None = getattr(self, f"_{name.replace('.', '_')}", None)
        if handler is None:
            raise PtxError(f"the host does not know {name}: {str(op)[:200]}")
        return handler(op, operands, values)

    def _arith(self, op: Any, name: str, operands: list[Any]) -> Any:
        if name == "constant":
            attribute = op.attributes["value"]
            return attribute.value if hasattr(attribute, "value") else attribute
        if name == "cmpi":
            return int(_COMPARE[predicate(op)](*operands))
        if name == "select":
            return operands[1] if operands[0] else operands[2]
        if name in _CASTS:
            return operands[0]
        kind = op.results[0].type
        bits = kind.width if isinstance(kind, ir.IntegerType) else 64
        value = operands[0] if name == "trunci" else _ARITHMETIC[name](*operands)
        return value & ((1 << bits) - 1)

    def _cf_assert(self, op: Any, operands: list[int], values: Any) -> list[Any]:
        if not operands[0]:
            raise Failure(op.attributes["msg"].value)
        return []

    def _affine_apply(self, op: Any, operands: list[int], values: Any) -> list[int]:
        return [affine(op.attributes["map"].value, operands)[0]]

    def _affine_min(self, op: Any, operands: list[int], values: Any) -> list[int]:
        return [min(affine(op.attributes["map"].value, operands))]

    def _affine_max(self, op: Any, operands: list[int], values: Any) -> list[int]:
        return [max(affine(op.attributes["map"].value, operands))]

    def _scf_if(self, op: Any, operands: list[Any], values: dict[Any, Any]) -> list[Any]:
        region = op.regions[0 if operands[0] else 1]
        return self._nested(region, [], values) if len(list(region.blocks)) else []

    def _scf_for(self, op: Any, operands: list[Any], values: dict[Any, Any]) -> list[Any]:
        start, end, step, *carried = operands
        for i in range(start, end, step):
            carried = self._nested(op.regions[0], [i, *carried], values)
        return carried

    # ---- util and hal

    def _util_global_load(self, op: Any, operands: Any, values: Any) -> list[Any]:
        return [self.globals.get(str(op.attributes["global"]).lstrip("@"))]

    def _util_global_store(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        self.globals[str(op.attributes["global"]).lstrip("@")] = operands[0]
        return []

    def _util_buffer_constant(self, op: Any, operands: Any, values: Any) -> list[Resource]:
        return [Resource.of("constants", constant_bytes(op.attributes["value"], self.resources))]

    def _util_call(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return self.call(str(op.attributes["callee"]).lstrip("@"), operands)

    def _util_assume_int(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return operands

    def _util_align(self, op: Any, operands: list[int], values: Any) -> list[int]:
        return [-(-operands[0] // operands[1]) * operands[1]]

    def _util_optimization_barrier(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return operands

    def _util_null(self, op: Any, operands: Any, values: Any) -> list[Any]:
        return [None]

    def _util_status_check_ok(self, op: Any, operands: list[int], values: Any) -> list[Any]:
        if operands[0]:
            raise Failure(op.attributes["message"].value)
        return []

    def _hal_buffer_view_dim(self, op: Any, operands: list[BufferView], values: Any) -> list[int]:
        return [operands[0].shape[op.attributes["index"].value]]

    def _hal_buffer_view_assert(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        shape = tuple(operands[3:])
        if operands[0].shape != shape:
            raise PtxError(f"an argument has the shape {operands[0].shape}, not {shape}")
        return []

    def _hal_element_type(self, op: Any, operands: Any, values: Any) -> list[int]:
        return [0]

    def _hal_encoding_type(self, op: Any, operands: Any, values: Any) -> list[int]:
        return [0]

    # ---- stream

    def _stream_timepoint_immediate(self, op: Any, operands: Any, values: Any) -> list[None]:
        return [None]

    def _stream_timepoint_join(self, op: Any, operands: Any, values: Any) -> list[None]:
        return [None]

    def _stream_timepoint_barrier(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return [operands[0], None]

    def _stream_timepoint_await(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return operands[: len(list(op.results))] if not segments(op) else operands[: segments(op)[0]]

    def _stream_resource_try_map(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        buffer, offset, size = operands
        return [1, buffer.view(offset, size)]

    def _stream_resource_alloc(self, op: Any, operands: list[int], values: Any) -> list[Resource]:
        return [Resource.empty("transient", operands[-1])]

    def _stream_resource_alloca(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return [Resource.empty("transient", next(o for o in operands if isinstance(o, int))), None]

    def _stream_resource_dealloca(self, op: Any, operands: list[Any], values: Any) -> list[None]:
        return [None]

    def _stream_resource_subview(self, op: Any, operands: list[Any], values: Any) -> list[Resource]:
        source, offset = operands[0], operands[2]
        return [source.view(offset, operands[3])]

    def _stream_resource_size(self, op: Any, operands: list[Resource], values: Any) -> list[int]:
        return [operands[0].size]

    def _stream_resource_load(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        kind = str(op.results[0].type)
        dtype = np.dtype(np.int64 if kind == "index" else ELEMENTS[kind])
        return [operands[0].bytes(operands[2], dtype.itemsize).copy().view(dtype)[0].item()]

    def _stream_file_constant(self, op: Any, operands: list[Any], values: Any) -> list[Resource]:
        return [operands[0]]

    def _stream_file_read(self, op: Any, operands: list[Any], values: Any) -> list[None]:
        file, start, target, _, offset, length, *_ = operands
        target.bytes(offset, length)[:] = file.bytes(start, length)
        return [None]

    def _stream_tensor_import(self, op: Any, operands: list[Any], values: Any) -> list[Resource]:
        return [operands[0].resource]

    def _stream_tensor_export(self, op: Any, operands: list[Any], values: Any) -> list[BufferView]:
        encoding = str(op.attributes["source_encoding"])
        match = re.match(r"tensor<((?:[^<>]|<[^<>]*>)*?)(?:, #.*)?>$", encoding)
        if match is None:
            raise PtxError(f"a result of type {encoding}")
        *sizes, element = match.group(1).split("x")
        dynamic = iter(operands[1:])
        shape = tuple(next(dynamic) if s == "?" else int(s) for s in sizes)
        return [BufferView(operands[0], shape, element)]

    def _stream_cmd_execute(self, op: Any, operands: list[Any], values: dict[Any, Any]) -> list[None]:
        arguments = [o for o in operands if isinstance(o, Resource)]
        self._nested(op.regions[0], arguments, values)
        return [None]

    def _stream_cmd_concurrent(self, op: Any, operands: list[Any], values: dict[Any, Any]) -> list[Any]:
        self._nested(op.regions[0], [], values)
        return []

    _stream_cmd_serial = _stream_cmd_concurrent

    def _stream_cmd_fill(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        target, _, offset, length, value = operands
        width = op.operands[4].type.width // 8
        pattern = (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        target.bytes(offset, length)[:] = np.frombuffer(pattern * (length // width), np.uint8)
        return []

    def _stream_cmd_copy(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        source, _, at, target, _, to, length = operands
        target.bytes(to, length)[:] = source.bytes(at, length)
        return []

    def _stream_cmd_flush(self, op: Any, operands: list[Any], values: Any) -> list[Any]:
        return []

    _stream_cmd_invalidate = _stream_cmd_discard = _stream_cmd_flush

    def _stream_cmd_dispatch(self, op: Any, operands: list[Any], values: dict[Any, Any]) -> list[Any]:
        sizes = segments(op)
        parts, at = [], 0
        for size in sizes:
            parts.append(operands[at : at + size])
            at += size
        workload, constants, resources, _, offsets, lengths = parts
        name = str(op.attributes["entry_points"]).rstrip("]").rpartition("@")[2]
        export = self.exports[name]
        # If the condition of an export does not hold, its fallback is dispatched.
        while list(export.regions[1].blocks) and not self._run_region(export.regions[1], [None, *workload])[0]:
            name = str(export.attributes["condition_fallback"]).lstrip("@")
            export = self.exports[name]
        counts = self._run_region(export.regions[0], [None, *workload])
        grid = (counts[0], counts[1], counts[2])
        access = [a.value for a in op.attributes["resource_accesses"]]  # 1 read, 2 write
        memory = GlobalMemory()
        addresses = []
        for i, (resource, offset, length) in enumerate(zip(resources, offsets, lengths, strict=True)):
            view = resource.view(offset, length)
            addresses.append(memory.bind(f"binding {i}", view.data, view.start, view.size, bool(access[i] & 2)))
        # IREE's figure is the sum over all functions of the executable (see qmlir-shared-memory).
        figures = [n for n in (SHARED_BYTES, "workgroup_local_memory") if n in export.attributes]
        shared = export.attributes[figures[0]].value if figures else 0
        limit = resolve(f"cuda:{self.ptx.target}").capabilities.shared_memory
        if shared > limit:
            raise PtxError(f"{name} asks for {shared} bytes of shared memory, and {self.ptx.target} has {limit}")
        if 0 not in grid:
            entry = self.ptx.entries[name]
            memory.lenient = "_dispatch_" in name  # built-in kernels must not access memory outside their buffers
            report = run_grid(self.ptx, entry, grid, [*addresses, *constants], memory, dynamic_shared=shared,
                              **self.options)  # fmt: skip
            self.dispatches.append(Dispatch(name, grid, report, memory.strays))
        return []
