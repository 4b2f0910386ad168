"""The instructions of AMD's GPUs that kernels use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ....core.mlir import OpLike, arith, ir, llvm, vector
from ....ir.walk import producer
from ....kernels.bodies import BodyCloner, Rule
from ...base import Target


def _intrinsic(name: str, arguments: list[ir.Value], result: ir.Type) -> ir.Value:
    return llvm.CallIntrinsicOp(result, name, arguments, [], []).operation.results[0]


def _mulf(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """A product that LLVM may not contract with a following sum: the epilogues of docs/semantics.md round both.

    LLVM cannot select its fence for a number that all lanes share: it asks for a scalar register, where no product of
    floats is made ("illegal VGPR to SGPR copy"). A product of scalars is one number, in a vector register."""
    scalars = _scalars(operands)
    if scalars is None:
        return llvm.ArithmeticFenceOp(arith.mulf(*operands)).result
    product = arith.mulf(*scalars)
    kept = llvm.InlineAsmOp(product.type, [product], "", "=v,0").res
    return vector.broadcast(operands[0].type, kept)


def _scalars(vectors: Iterable[ir.Value]) -> list[ir.Value] | None:
    """The scalars that are in all lanes of vectors; None where the ops that make one do not say so."""
    found = [_scalar(value) for value in vectors]
    known = [scalar for scalar in found if scalar is not None]
    return known if len(known) == len(found) else None


def _scalar(value: ir.Value) -> ir.Value | None:
    op = producer(value)
    if op is None or not isinstance(value.type, ir.VectorType):
        return None
    if op.name == "vector.broadcast":
        source = op.operands[0]
        return None if isinstance(source.type, ir.VectorType) else source
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
            return None
        return arith.constant(value.type.element_type, attribute.get_splat_value())
    operands = _scalars(op.operands) if op.name.startswith("arith.") else None
    if operands is None:
        return None
    names = [a if isinstance(a, str) else a.name for a in op.attributes]
    attributes = {name: op.attributes[name] for name in names}
    return ir.Operation.create(
        op.name, results=[value.type.element_type], operands=operands, attributes=attributes
    ).results[0]


def _roundeven(cloner: BodyCloner, op: OpLike, operands: list[ir.Value]) -> ir.Value:
    """`v_rndne_f32`."""
    return _intrinsic("llvm.roundeven", operands, operands[0].type)


@dataclass(frozen=True)
class Amd:
    """One architecture: CDNA runs 64 threads together, RDNA is asked for 32.

    Attributes:
        cdna: whether it is made for computing: MFMA, and accumulators in registers of their own.
    """

    arch: str
    cdna: bool

    @property
    def subgroup(self) -> int:
        """See `gpu_kernels.machine.Machine`."""
        return 64 if self.cdna else 32

    @property
    def rules(self) -> Mapping[str, Rule]:
        """See `gpu_kernels.machine.Machine`."""
        return {"arith.mulf": _mulf, "math.roundeven": _roundeven}

    @property
    def bf16_as_bits(self) -> bool:
        """See `gpu_kernels.machine.Machine`."""
        return False

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`v_dot4_i32_i8`, or from RDNA3 on `v_dot4_i32_iu8` with a sign for each side."""
        i1 = ir.IntegerType.get_signless(1)
        no = arith.constant(i1, 0)
        if self.cdna:
            return _intrinsic("llvm.amdgcn.sdot4", [a, b, total, no], total.type)
        yes = arith.constant(i1, 1)
        return _intrinsic("llvm.amdgcn.sudot4", [yes, a, yes, b, total, no], total.type)


def amd(target: Target) -> Amd:
    """The instructions of a target."""
    return Amd(target.name, "mfma" in target.features)
