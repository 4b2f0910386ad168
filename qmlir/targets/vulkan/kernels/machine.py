"""The instructions of SPIR-V that kernels use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....core.mlir import OpLike, arith, ir, memref
from ....ir.division import exact_quotient
from ....kernels.bodies import BodyCloner, Rule
from ...gpu_kernels import emit as e
from ...gpu_kernels.machine import Machine


def _mulf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """A product that a driver must not contract with a following sum (`NoContraction`): the epilogues of
    docs/semantics.md round both."""
    kind = operands[0].type
    if not isinstance(kind.element_type, ir.F32Type):
        return None
    return e.operation("spirv.FMul", kind, operands, no_contraction=ir.UnitAttr.get())


def _divf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """An exact quotient, which outside of kernels the pass qmlir-exact-divisions emits."""
    return exact_quotient(op, *operands)


@dataclass(frozen=True)
class Spirv(Machine):
    """Vulkan devices with `VK_KHR_shader_integer_dot_product`, which Vulkan 1.3 contains."""

    rules: ClassVar[Mapping[str, Rule]] = {"arith.mulf": _mulf, "arith.divf": _divf}
    bf16_as_bits = True

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`OpSDotAccSat`: the sum does not saturate, because the verifier ensures that it fits i32."""
        packed = ir.Attribute.parse("#spirv.packed_vector_format<PackedVectorFormat4x8Bit>")
        return e.operation("spirv.SDotAccSat", total.type, [a, b, total], format=packed)

    def release(self) -> None:
        """A barrier of memory: that of a workgroup is for shared memory only."""
        _memory_barrier()

    def count(self, counters: ir.Value, number: e.Index) -> ir.Value:
        """See `Machine`."""
        one = e.constant(1, e.integer(32))
        return memref.AtomicRMWOp(arith.AtomicRMWKind.addi, one, counters, [e.index(number)]).result

    def acquire(self) -> None:
        """See `release`."""
        _memory_barrier()

    def leave(self) -> None:
        """See `Machine`."""
        e.barrier()


def _memory_barrier() -> None:
    """Order accesses of buffers as other workgroups see them (`passes/core/coherent_buffers.py`)."""
    ir.Context.current.get_dialect_descriptor("spirv")
    scope = ir.Attribute.parse("#spirv.scope<Device>")
    semantics = ir.Attribute.parse("#spirv.memory_semantics<AcquireRelease|UniformMemory>")
    ir.Operation.create("spirv.MemoryBarrier", attributes={"memory_scope": scope, "memory_semantics": semantics})
