"""qmlir-widen-masks: store masks that are read with a product's result as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.attributes import is_elementwise
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import mapped
from ....ir.walk import VIEWS, collect, defining_op, producer
from ...base import Pass, State
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE packs a mask of i1 with a product's result, as bytes with a padding of i1: masked products are wrong.",
        canary="masked_product",
    ),
)


@dataclass(frozen=True)
class WidenMasksPass(Pass):
    """Replace an i1 tensor that an elementwise op reads together with a product's result by a tensor of bytes. IREE
    3.13 packs the i1 tensor with the result, as i8 with a padding of i1, which its verifier refuses (`'linalg.pack' op
    expected padding_value has 'i8' but got: 'i1'`). Without the verifier the tensor is read as bits, so that a masked
    attention was silently wrong.
    """

    name: ClassVar[str] = "qmlir-widen-masks"
    summary: ClassVar[str] = "store masks that are read with a product's result as bytes"

    def run(self, module: ir.Module, state: State) -> None:
        for op in _masked(module):
            _widen_masks(op)


def _masked(module: ir.Module) -> list[OpLike]:
    """The generics that read an i1 tensor among the ops that IREE fuses behind a product: the elementwise ops that read
    its result, and those that compute their other operands."""
    behind = {v for c in find_contractions(module) for v in c.operation.results}
    fused: dict[OpLike, None] = {}

    for op in collect(module, "linalg.generic", *VIEWS) if behind else ():
        if any(v in behind for v in op.operands):
            behind.update(op.results)
            fused[op] = None
    todo = list(fused)
    while todo:
        for v in todo.pop().operands:
            made = producer(v)
            if made is not None and made not in fused and (made.name in VIEWS or is_elementwise(made)):
                fused[made] = None
                todo.append(made)
    return [op for op in fused if op.name == "linalg.generic" and _masks(op)]


def _masks(op: OpLike) -> list[int]:
    """The operands of a generic that are i1 tensors with axes, except those that vanish because IREE fuses the
    elementwise op that makes them into this one, its only reader."""
    read = list(op.operands)[: len(op.operands) - len(op.results)]
    return [i for i, v in enumerate(read) if _is_mask(v.type) and not _vanishes(v)]


def _is_mask(t: ir.Type) -> bool:
    if not isinstance(t, ir.RankedTensorType) or not isinstance(t.element_type, ir.IntegerType):
        return False
    return bool(t.rank and t.element_type.width == 1)


def _vanishes(value: ir.Value) -> bool:
    made = producer(value)
    return made is not None and is_elementwise(made) and len(list(value.uses)) == 1


def _widen_masks(op: OpLike) -> None:
    byte, truth = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(1)
    block = op.regions[0].blocks[0]
    for i in _masks(op):
        with ir.InsertionPoint(op), op.location:
            op.operands[i] = fusion_barrier(
                mapped(op.operands[i], byte, lambda bit: arith.extui(byte, bit)), Reason.BYTE_MASK
            )
        argument = block.arguments[i]
        argument.set_type(byte)
        with ir.InsertionPoint.at_block_begin(block), op.location:
            read = arith.trunci(truth, argument)
        argument.replace_all_uses_except(read, defining_op(read))
