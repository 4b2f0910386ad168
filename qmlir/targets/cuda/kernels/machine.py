"""The `Machine` of NVIDIA GPUs, and rules for scalar ops that have a better form there than IREE's lowering gives."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import OpLike, arith, ir, llvm
from ....kernels.bodies import BodyCloner, Rule
from ....kernels.requantised import requantised
from ...base import Target
from ...gpu_kernels import emit as e
from ...gpu_kernels.machine import Machine, roundeven
from . import instructions as gpu


def rounded(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Round a vector of f32 to 16-bit floats. For bf16 this becomes `cvt.rn.bf16x2.f32`, where IREE 3.13 emits a dozen
    integer instructions."""
    if isinstance(kind.element_type, ir.BF16Type) and isinstance(value.type.element_type, ir.F32Type):
        return llvm.FPTruncOp(kind, value).result
    return arith.truncf(kind, value)


def _truncf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    return rounded(operands[0], cloner.widen(op.results[0].type))


def _fptosi(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """Requantise by one conversion, which rounds to even, saturates and turns NaN into 0 (PTX ISA, `cvt`). An SM does
    16 conversions per clock, but 128 additions."""
    form = requantised(op.operands[0]) if str(op.results[0].type) == "i32" else None
    if form is None:
        return None
    value, zero, lo, hi = form
    numbers = cloner.value(value, cloner.known)
    if zero is None and (lo, hi) in gpu.CODES:
        return gpu.converted(numbers, gpu.CODES[lo, hi])
    i32 = e.integer(32)
    codes = gpu.converted(numbers, "s32")
    bounds = [e.splat(int(bound), cloner.lanes, i32) for bound in (lo, hi)]
    if zero is None:
        return arith.minsi(arith.maxsi(codes, bounds[0]), bounds[1])
    zeros = arith.fptosi(cloner.widen(i32), cloner.value(zero, cloner.known))
    least, most = (arith.subi(bound, zeros) for bound in bounds)
    return arith.addi(arith.minsi(arith.maxsi(codes, least), most), zeros)


RULES: dict[str, Rule] = {"math.roundeven": roundeven, "arith.truncf": _truncf, "arith.fptosi": _fptosi}


@dataclass(frozen=True)
class Nvidia(Machine):
    """NVIDIA GPUs from sm_80 on.

    Attributes:
        shared_memory: bytes that the blocks on a multiprocessor may use.
        registers: 32-bit registers of a multiprocessor.
    """

    shared_memory: int
    registers: int
    rules = RULES
    vectors_in_memory = False
    library = True
    pooled = True
    routing = 512, 1 << 15

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`dp4a`."""
        return gpu.dp4a(a, b, total)

    def release(self) -> None:
        """Nothing: the barriers and the atomic of `count` order the stores (PTX ISA, memory consistency model:
        causality order)."""

    def count(self, counters: ir.Value, number: e.Index) -> ir.Value:
        return gpu.count(counters, number, 4)

    def acquire(self) -> None:
        """Nothing: see `release`."""

    def leave(self) -> None:
        """Wait until no copy is in flight and no thread reads a copied tile."""
        gpu.wait(0)
        e.barrier()


def nvidia(target: Target) -> Nvidia:
    """The machine of a target."""
    has = target.capabilities
    return Nvidia(has.subgroup_sizes[0], has.shared_memory, has.unit_registers)
