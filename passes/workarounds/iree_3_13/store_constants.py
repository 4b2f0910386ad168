"""qmlir-store-constants: keep small bf16 and one-byte float constants in memory, outside of the dispatches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import ir
from ....ir.barriers import Reason, fusion_barrier
from ....ir.walk import collect, defining_op
from ...base import Pass, State

if TYPE_CHECKING:
    from ....core.mlir import OpLike

FAULTS = (
    Fault(
        "Small constants of bf16 are f32 in the SPIR-V of a dispatch, whose bits are then taken for those of bf16: "
        "drivers refuse it.",
        canary="bf16_constant",
    ),
    Fault(
        "Small constants of floats of one byte cannot be legalised in a dispatch for SPIR-V, where their bits are "
        "read (`failed to legalize operation 'builtin.unrealized_conversion_cast'`).",
        canary="float8_constant",
    ),
)

_INLINED = 256  # bytes: the default of --iree-flow-inline-constants-max-byte-length


@dataclass(frozen=True)
class StoreConstantsPass(Pass):
    """Put a fusion barrier behind each small constant of bf16 or of one-byte floats. IREE 3.13 inlines these constants
    into the dispatches that read them, where for SPIR-V they have other bits or cannot be legalised.
    """

    name: ClassVar[str] = "qmlir-store-constants"
    summary: ClassVar[str] = "store small constants of bf16 and of one-byte floats, which dispatches would hold"

    def run(self, module: ir.Module, state: State) -> None:
        for op in collect(module, "arith.constant", where=_inlined):
            with ir.InsertionPoint.after(op), op.location:
                stored = fusion_barrier(op.results[0], Reason.CONSTANT_BITS)
            op.results[0].replace_all_uses_except(stored, defining_op(stored))


def _inlined(op: OpLike) -> bool:
    """Whether IREE inlines a bf16 or one-byte float constant into dispatches as a tensor; a splat becomes a scalar."""
    value, t = op.attributes["value"], op.results[0].type
    if not isinstance(value, ir.DenseElementsAttr) or value.is_splat or not isinstance(t.element_type, ir.FloatType):
        return False
    bits = t.element_type.width <= 8 or isinstance(t.element_type, ir.BF16Type)
    return bits and t.element_type.width // 8 * math.prod(t.shape) <= _INLINED
