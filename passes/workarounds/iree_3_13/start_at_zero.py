"""qmlir-start-at-zero: accumulate convolutions and products from zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir, tensor
from ....dialect.constants import is_zero_fill
from ....ir.affine import indexing_maps
from ....ir.walk import collect, defining_op
from ....targets.tensors import filled, generic, rewritten, sizes_of, type_of
from ...base import Pass, State
from ...core.contractions import is_product

FAULTS = (
    Fault(
        "On AMD, the waves of a grouped convolution whose accumulator starts from a reshaped bias overwrite each "
        "other's shared memory.",
        canary="bias_of_groups",
    ),
)


@dataclass(frozen=True)
class StartAtZeroPass(Pass):
    """Make a convolution or product with another initial value, such as a bias, start from zeros, and add the initial
    value to its result. Runs on the executables that IREE forms (`Target.source_passes`).

    IREE 3.13 itself does so for most of them on GPUs. For a grouped f32 convolution with a reshaped bias, it emits a
    kernel for AMD whose waves write to each other's shared memory, and the result is wrong.
    """

    name: ClassVar[str] = "qmlir-start-at-zero"
    summary: ClassVar[str] = (
        "accumulate convolutions and products from zeros, and add their initial values afterwards (GPUs)"
    )

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, where=is_product):
            start = op.operands[2]
            if is_zero_fill(start):
                continue
            with op.location, ir.InsertionPoint(op):
                element = type_of(start).element_type
                zeros = filled(sizes_of(start), element)
                made = rewritten(op, [*list(op.operands)[:2], zeros], indexing_maps(op))
            rank = type_of(start).rank
            add = arith.addf if isinstance(element, ir.FloatType) else arith.addi
            with defining_op(made).location, ir.InsertionPoint.after(defining_op(made)):
                total = generic(
                    [made, start],
                    tensor.empty(sizes_of(start), element),
                    [ir.AffineMap.get_identity(rank)] * 3,
                    ["parallel"] * rank,
                    lambda x, y, _, add=add: add(x, y),
                )
            made.replace_all_uses_except(total, defining_op(total))
