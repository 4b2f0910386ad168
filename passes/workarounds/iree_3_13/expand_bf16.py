"""qmlir-expand-bf16: convert to bf16 in integer arithmetic, for x86 CPUs without instructions for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.scalars import bf16_bits, shaped_like
from ....ir.walk import collect
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_LOAD, _STORE = "llvm.intr.masked.load", "llvm.intr.masked.store"
_FROM_INTEGERS = {"arith.sitofp": arith.sitofp, "arith.uitofp": arith.uitofp}


FAULTS = (
    Fault(
        "On x86 CPUs without instructions for bf16, LLVM converts integers to bf16 by a library call that is never "
        "linked.",
        canary="integer_to_bf16",
        upstream="https://github.com/iree-org/iree/issues/13499",
    ),
    Fault(
        "IREE drops the rounding to bf16 when it fuses the op that rounds with the op that reads its result.",
        canary="rounding_to_bf16",
    ),
)


@dataclass(frozen=True)
class ExpandBf16Pass(Pass):
    """Replace conversions to bf16 by conversions to f32 whose bits are rounded with integer operations.

    IREE 3.13's pass `iree-convert-bf16-arith-to-f32` drops a rounding to bf16 that is fused with its reader.

    On x86 CPUs without bf16 instructions, LLVM lowers other conversions to calls of `__truncsfbf2`, which is not
    linked. IREE 3.13 expands `arith.truncf`, except in kernels that are lowered without one of its pipelines. MLIR
    folds the conversion of an integer to f32 and the rounding into one `arith.sitofp` to bf16. Masked loads and stores
    of bf16, which LLVM splits into scalar ones, are replaced by those of the i16 bits. With `kernels=false`, for CPUs
    with the instructions, the bodies of kernels are unchanged.
    """

    name: ClassVar[str] = "qmlir-expand-bf16"
    summary: ClassVar[str] = "convert to bf16 without a library call"

    kernels: bool = True  # also in the bodies of kernels

    def run(self, module: ir.Module, state: State) -> None:
        masked = collect(module, _LOAD, _STORE) if self.kernels else []
        found = collect(module, "arith.truncf", *_FROM_INTEGERS, where=lambda op: _rounds(op) and self._in_scope(op))
        for op in found:
            with op.location, ir.InsertionPoint(op):
                value = op.operands[0]
                if op.name in _FROM_INTEGERS:
                    value = _FROM_INTEGERS[op.name](shaped_like(value, ir.F32Type.get()), value)
                result = arith.bitcast(op.results[0].type, bf16_bits(value))
            for use in list(op.results[0].uses):
                fence = use.owner.operation
                if fence.name == "llvm.intr.arithmetic.fence":  # not needed: nothing folds integer operations
                    fence.results[0].replace_all_uses_with(result)
                    fence.erase()
            op.results[0].replace_all_uses_with(result)
            op.erase()
        for op in masked:
            _move_bits(op)

    def _in_scope(self, op: OpLike) -> bool:
        return self.kernels or op.parent.operation.name.startswith("linalg.")


def _rounds(op: OpLike) -> bool:
    """Whether an op converts f32 or integers to bf16."""
    return _is(op.results[0].type, ir.BF16Type) and (op.name in _FROM_INTEGERS or _is(op.operands[0].type, ir.F32Type))


def _move_bits(op: OpLike) -> None:
    """Replace a masked load or store of bf16 by one of i16."""
    with op.location, ir.InsertionPoint(op):
        i16 = ir.IntegerType.get_signless(16)
        if op.name == _STORE and _is(op.operands[0].type, ir.BF16Type):
            op.operands[0] = arith.bitcast(shaped_like(op.operands[0], i16), op.operands[0])
        elif op.name == _LOAD and _is(op.results[0].type, ir.BF16Type):
            operands = list(op.operands)
            if len(operands) == 3:  # the values of lanes that are not loaded
                operands[2] = arith.bitcast(shaped_like(operands[2], i16), operands[2])
            bits = ir.Operation.create(
                _LOAD,
                results=[shaped_like(op.results[0], i16)],
                operands=operands,
                attributes=dict(op.attributes.items()),
            ).results[0]
            op.results[0].replace_all_uses_with(arith.bitcast(op.results[0].type, bits))
            op.erase()


def _is(t: ir.Type, kind: type[ir.Type]) -> bool:
    return isinstance(t.element_type if isinstance(t, ir.VectorType) else t, kind)
