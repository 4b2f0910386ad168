"""qmlir-coherent-buffers: mark the buffers through which workgroups exchange data as coherent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...core.mlir import OpLike, ir
from ...ir.walk import collect
from ..base import Pass, State

_LOAD, _STORE = "spirv.Load", "spirv.Store"


@dataclass(frozen=True)
class CoherentBuffersPass(Pass):
    """Runs on the executables that IREE has translated (`Target.code_passes`).

    A kernel whose workgroups share K (`gpu_kernels/stream_k.py`) reads in one workgroup what others have written. In
    SPIR-V's memory model `GLSL450` that needs memory barriers, which the kernel has, and a buffer decorated as
    `Coherent`, which no operation of IREE's input can express. In shaders with memory barriers of their own, this pass
    decorates the buffers that are both read and written. Counters, which only atomics access, need no decoration.
    """

    name: ClassVar[str] = "qmlir-coherent-buffers"
    summary: ClassVar[str] = "mark buffers through which workgroups exchange data as coherent (Vulkan)"

    def run(self, module: ir.Module, state: State) -> None:
        for shader in collect(module, "spirv.module"):
            if not collect(shader, "spirv.MemoryBarrier"):
                continue
            uses: dict[str, set[str]] = {}
            for op in collect(shader, "spirv.mlir.addressof"):
                name = ir.FlatSymbolRefAttr(op.attributes["variable"]).value
                uses.setdefault(name, set()).update(_accesses(op.results[0]))
            for variable in collect(shader, "spirv.GlobalVariable"):
                if "binding" not in variable.attributes:  # shared memory, or a built-in value
                    continue
                if uses.get(ir.StringAttr(variable.attributes["sym_name"]).value, set()) >= {_LOAD, _STORE}:
                    variable.attributes["coherent"] = ir.UnitAttr.get()


def _accesses(pointer: ir.Value) -> set[str]:
    """The names of the operations that access memory by a pointer, or by one that is computed from it."""
    found: set[str] = set()
    for use in pointer.uses:
        op: OpLike = use.owner
        if op.name == "spirv.AccessChain":
            found |= _accesses(op.results[0])
        else:
            found.add(op.name)
    return found
