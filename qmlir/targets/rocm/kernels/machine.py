"""The instructions of AMD GPUs that kernels use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import OpLike, arith, gpu, ir, llvm, memref, vector
from ....ir.walk import made_by, producer
from ....kernels import emit as e
from ....kernels.bodies import BodyCloner, Rule
from ...base import Target
from ...gpu_kernels.machine import Machine, roundeven

FAULTS = (
    Fault(
        "MLIR's rewrite of `arith.extsi` of a `vector.bitcast` from longer integers, which IREE runs for AMD, extends "
        "bytes without their sign: a negative code becomes 256 more.",
        canary="extended_bytes",
        upstream="https://github.com/llvm/llvm-project/pull/199243",
    ),
)


def _extsi(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value | None:
    """Sign-extend bytes of words by shifts: see `FAULTS`."""
    (value,), kind = operands, cloner.widen(op.results[0].type)
    if made_by(value, "vector.bitcast") is None:
        return None
    left = e.splat(kind.element_type.width - value.type.element_type.width, cloner.lanes, kind.element_type)
    return arith.shrsi(arith.shli(arith.extui(kind, value), left), left)


def _mulf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A product that LLVM may not contract with a following sum: the epilogues of docs/semantics.md round both.

    LLVM cannot select its arithmetic fence for a wave-uniform value: it requests a scalar register, but float products
    are computed in vector registers ("illegal VGPR to SGPR copy"). A value that threads compute alike from the same
    operands may be uniform; assembly without an instruction keeps it in a vector register."""
    product = arith.mulf(*operands)
    if not _may_be_uniform(product):
        return llvm.ArithmeticFenceOp(product).result
    left, right = map(_scalar, operands)
    if left is not None and right is not None:
        return vector.broadcast(product.type, _in_vector_register(arith.mulf(left, right)))
    return _in_vector_register(product)


def _in_vector_register(number: ir.Value) -> ir.Value:
    """Keep a value in vector registers; a vector as a whole, because lanes are multiplied in pairs (`v_pk_mul_f32`)."""
    kept: ir.Value = llvm.InlineAsmOp(number.type, [number], "", "=v,0").res
    return kept


def _may_be_uniform(value: ir.Value) -> bool:
    """Whether a value depends only on constants and on values read from memory, not on a thread's sums."""
    op = producer(value)
    if op is None:
        return False
    if op.name in ("memref.load", "vector.load"):
        return True
    made = op.name.startswith(("arith.", "math.", "vector.")) or op.name in ("llvm.inline_asm", _FENCE)
    return made and all(_may_be_uniform(operand) for operand in op.operands)


def _scalar(value: ir.Value) -> ir.Value | None:
    """The scalar that all lanes of a vector hold, if the vector is a broadcast or a splat constant; else None."""
    broadcast, constant = made_by(value, "vector.broadcast"), made_by(value, "arith.constant")
    if broadcast is not None and not isinstance(broadcast.operands[0].type, ir.VectorType):
        return broadcast.operands[0]
    splat = None if constant is None else constant.attributes["value"]
    if isinstance(splat, ir.DenseElementsAttr) and splat.is_splat:
        return arith.constant(splat.get_splat_value().type, splat.get_splat_value())
    return None


_DEVICE = "agent"  # LLVM's name of the scope of all workgroups
_FENCE = "llvm.intr.arithmetic.fence"


@dataclass(frozen=True)
class Amd(Machine):
    """One architecture. CDNA has subgroups of 64 threads; on RDNA subgroups of 32 are requested.

    Attributes:
        cdna: whether it is CDNA, with MFMA and separate registers for accumulators.
    """

    arch: str
    cdna: bool

    rolled: ClassVar[int] = 8
    rules: ClassVar[Mapping[str, Rule]] = {"arith.extsi": _extsi, "arith.mulf": _mulf, "math.roundeven": roundeven}

    def release(self) -> None:
        """Release this thread's own stores: a barrier waits for those to global memory in some modes only (LLVM's "User
        Guide for AMDGPU Backend", section "Memory Model")."""
        llvm.FenceOp(llvm.AtomicOrdering.release, syncscope=_DEVICE)

    def count(self, counters: ir.Value, number: e.Index) -> ir.Value:
        """See `Machine`."""
        i64, i32 = e.integer(64), e.integer(32)
        base = arith.index_castui(i64, memref.ExtractAlignedPointerAsIndexOp(counters).result)
        place = arith.addi(base, arith.index_castui(i64, e.index(e.multiply(number, 4))))
        pointer = llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr<1>"), place).result
        kind, order = llvm.AtomicBinOp.add, llvm.AtomicOrdering.acq_rel
        return llvm.AtomicRMWOp(kind, pointer, e.constant(1, i32), order, syncscope=_DEVICE).result

    def acquire(self) -> None:
        """Nothing: a barrier has a fence that acquires."""

    def leave(self) -> None:
        """See `Machine`."""
        gpu.barrier()

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`v_dot4_i32_i8`, or from RDNA3 on `v_dot4_i32_iu8` with a sign flag for each side."""
        i1 = ir.IntegerType.get_signless(1)
        no = arith.constant(i1, 0)
        if self.cdna:
            return e.intrinsic("llvm.amdgcn.sdot4", [a, b, total, no], total.type)
        yes = arith.constant(i1, 1)
        return e.intrinsic("llvm.amdgcn.sudot4", [yes, a, yes, b, total, no], total.type)


def amd(target: Target) -> Amd:
    """The machine of a target."""
    has = target.capabilities
    return Amd(has.subgroup_sizes[0], target.name, "mfma" in has.features)
