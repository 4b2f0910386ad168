"""The instructions of AMD's GPUs that kernels use."""

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
    """Bytes of words with their sign: see `FAULTS`."""
    (value,), kind = operands, cloner.widen(op.results[0].type)
    if made_by(value, "vector.bitcast") is None:
        return None
    left = e.splat(kind.element_type.width - value.type.element_type.width, cloner.lanes, kind.element_type)
    return arith.shrsi(arith.shli(arith.extui(kind, value), left), left)


def _mulf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A product that LLVM may not contract with a following sum: the epilogues of docs/semantics.md round both.

    LLVM cannot select its fence for a number that a whole wave shares: it asks for a scalar register, where no product
    of floats is made ("illegal VGPR to SGPR copy"). Whatever threads with the same operands compute alike may be such a
    number; it stays in a vector register by way of assembly without an instruction."""
    product = arith.mulf(*operands)
    if not _may_be_shared(product):
        return llvm.ArithmeticFenceOp(product).result
    left, right = map(_scalar, operands)
    if left is not None and right is not None:
        return vector.broadcast(product.type, _in_vector_register(arith.mulf(left, right)))
    return _in_vector_register(product)


def _in_vector_register(number: ir.Value) -> ir.Value:
    """Of a vector as a whole, because lanes are multiplied in pairs (`v_pk_mul_f32`)."""
    kept: ir.Value = llvm.InlineAsmOp(number.type, [number], "", "=v,0").res
    return kept


def _may_be_shared(value: ir.Value) -> bool:
    """Whether it is made of constants and of what is read from memory alone, and not of a thread's sums."""
    op = producer(value)
    if op is None:
        return False
    if op.name in ("memref.load", "vector.load"):
        return True
    made = op.name.startswith(("arith.", "math.", "vector.")) or op.name in ("llvm.inline_asm", _FENCE)
    return made and all(_may_be_shared(operand) for operand in op.operands)


def _scalar(value: ir.Value) -> ir.Value | None:
    """The scalar that is in all lanes of a vector, where the op that makes it says so."""
    broadcast, constant = made_by(value, "vector.broadcast"), made_by(value, "arith.constant")
    if broadcast is not None and not isinstance(broadcast.operands[0].type, ir.VectorType):
        return broadcast.operands[0]
    splat = None if constant is None else constant.attributes["value"]
    if isinstance(splat, ir.DenseElementsAttr) and splat.is_splat:
        return arith.constant(splat.get_splat_value().type, splat.get_splat_value())
    return None


_DEVICE = "agent"  # the scope of all workgroups, LLVM's name
_FENCE = "llvm.intr.arithmetic.fence"


@dataclass(frozen=True)
class Amd(Machine):
    """One architecture: CDNA runs 64 threads together, RDNA is asked for 32.

    Attributes:
        cdna: whether it is made for computing: MFMA, and accumulators in registers of their own.
    """

    arch: str
    cdna: bool

    rolled: ClassVar[int] = 8
    rules: ClassVar[Mapping[str, Rule]] = {"arith.extsi": _extsi, "arith.mulf": _mulf, "math.roundeven": roundeven}

    def release(self) -> None:
        """Of this thread's own stores: a barrier waits for those to global memory in some modes only (LLVM's "User
        Guide for AMDGPU Backend", section "Memory Model")."""
        llvm.FenceOp(llvm.AtomicOrdering.release, syncscope=_DEVICE)

    def count(self, counters: ir.Value, number: e.Index) -> ir.Value:
        """See `stream_k.Counter`."""
        i64, i32 = e.integer(64), e.integer(32)
        base = arith.index_castui(i64, memref.ExtractAlignedPointerAsIndexOp(counters).result)
        place = arith.addi(base, arith.index_castui(i64, e.index(e.multiply(number, 4))))
        pointer = llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr<1>"), place).result
        kind, order = llvm.AtomicBinOp.add, llvm.AtomicOrdering.acq_rel
        return llvm.AtomicRMWOp(kind, pointer, e.constant(1, i32), order, syncscope=_DEVICE).result

    def leave(self) -> None:
        """See `stream_k.Counter`."""
        gpu.barrier()

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`v_dot4_i32_i8`, or from RDNA3 on `v_dot4_i32_iu8` with a sign for each side."""
        i1 = ir.IntegerType.get_signless(1)
        no = arith.constant(i1, 0)
        if self.cdna:
            return e.intrinsic("llvm.amdgcn.sdot4", [a, b, total, no], total.type)
        yes = arith.constant(i1, 1)
        return e.intrinsic("llvm.amdgcn.sudot4", [yes, a, yes, b, total, no], total.type)


def amd(target: Target) -> Amd:
    """The instructions of a target."""
    has = target.capabilities
    return Amd(has.subgroup_sizes[0], target.name, "mfma" in has.features)
