"""qmlir-choose-data-tiling: choose the products that IREE packs, where it cannot pack all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.barriers import Reason, fusion_barrier
from ....ir.build import mapped
from ....ir.walk import VIEWS, collect, producer
from ...base import Pass, State
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "IREE packs products with a batch of dynamic size, and fails to compile some (`no basis element may "
        "be statically non-positive`).",
    ),
    Fault(
        "IREE packs a mask of i1 with a product's result, as bytes with a padding of i1: a masked product is wrong.",
        canary="masked_product",
    ),
)


HINT = "iree.opt.data_tiling"


@dataclass(frozen=True)
class ChooseDataTilingPass(Pass):
    """IREE 3.13 packs all products if none is marked for data tiling, and fails on those with a batch of dynamic size
    ("no basis element may be statically non-positive"). In a program with such a product (attention), this pass marks
    the other products. A sum over a float tensor of three axes, one of them dynamic, counts as such a product, because
    IREE forms one if the summed value is a product of elements (a masked mean). If there is nothing to mark, the
    initial value is marked, which is never packed. Other programs are unchanged.

    A tensor of i1 that an elementwise op reads together with a product's result becomes a tensor of bytes: IREE 3.13
    packs it with the result, as i8 with a padding of i1, which its verifier refuses (`'linalg.pack' op expected
    padding_value has 'i8' but got: 'i1'`). Without the verifier it is read as bits, so that a masked attention was
    silently wrong.
    """

    name: ClassVar[str] = "qmlir-choose-data-tiling"
    summary: ClassVar[str] = "keep products with a dynamic batch out of data tiling"

    def run(self, module: ir.Module, state: State) -> None:
        for op in _masked(module):
            _widen_masks(op)
        products = [c for c in find_contractions(module) if c.kind == "matmul"]
        if not any(None in c.batch for c in products) and not _sums(module):
            return
        packed = [
            c.operation for c in products if None not in c.batch and "compilation_info" not in c.operation.attributes
        ]
        for op in packed or _starts(module):
            op.attributes[HINT] = ir.UnitAttr.get()


def _masked(module: ir.Module) -> list[OpLike]:
    """The generics that read a tensor of i1 in what IREE fuses behind a product: the elementwise ops that read its
    result, and those that compute what they read beside it."""
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
            if made is not None and made not in fused and (made.name in VIEWS or _elementwise(made)):
                fused[made] = None
                todo.append(made)
    return [op for op in fused if op.name == "linalg.generic" and _masks(op)]


def _elementwise(op: OpLike) -> bool:
    return op.name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"])


def _masks(op: OpLike) -> list[int]:
    """The operands that a generic reads which are tensors of i1 with axes, but for those that vanish when IREE fuses
    the elementwise op that makes them for this one alone."""
    read = list(op.operands)[: len(op.operands) - len(op.results)]
    return [i for i, v in enumerate(read) if _is_mask(v.type) and not _vanishes(v)]


def _is_mask(t: ir.Type) -> bool:
    if not isinstance(t, ir.RankedTensorType) or not isinstance(t.element_type, ir.IntegerType):
        return False
    return bool(t.rank and t.element_type.width == 1)


def _vanishes(value: ir.Value) -> bool:
    made = producer(value)
    return made is not None and _elementwise(made) and len(list(value.uses)) == 1


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
        argument.replace_all_uses_except(read, read.owner.operation)


def _sums(module: ir.Module) -> bool:
    """Whether the module reduces a tensor of floats with three axes or more, one of them dynamic."""
    return any(_batched(op.operands[0].type) for op in collect(module, "linalg.generic") if not _elementwise(op))


def _batched(t: ir.Type) -> bool:
    if not isinstance(t, ir.RankedTensorType) or not isinstance(t.element_type, ir.FloatType):
        return False
    return t.rank > 2 and any(t.is_dynamic_dim(i) for i in range(t.rank))


def _starts(module: ir.Module) -> list[OpLike]:
    """The `tensor.empty` of a module: one at least outlives the passes before IREE looks for marks."""
    return collect(module, "tensor.empty")
