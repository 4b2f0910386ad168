"""qmlir-explicit-sign: write out the sign extension of bytes, for targets that lose it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....core.faults import Fault
from ....core.mlir import arith, ir
from ....ir.walk import collect
from ...base import Pass, State
from ...core.contractions import find_contractions

if TYPE_CHECKING:
    from ....core.mlir import OpLike


FAULTS = (
    Fault(
        "IREE's SPIR-V route emulates loads of bytes by loads of words, and loses the sign of bytes that are summed.",
        canary="byte_sum",
    ),
)


@dataclass(frozen=True)
class ExplicitSignPass(Pass):
    """Replace `extsi(x)` of an i8 by `(extui(x) ^ 128) - 128`, except in the bodies of contractions.

    IREE 3.13's SPIR-V path emulates byte loads by loads of wider words, and loses the sign of `extsi` in reductions
    that are fused with a consumer: a sum of bytes was 256 too large for each negative one. Contractions keep `extsi`,
    by which dot-product and matrix instructions are recognised.
    """

    name: ClassVar[str] = "qmlir-explicit-sign"
    summary: ClassVar[str] = "write out the sign extension of bytes outside contractions"

    def run(self, module: ir.Module, state: State) -> None:
        kept = {c.op for c in find_contractions(module)}
        found = collect(
            module,
            "arith.extsi",
            where=lambda op: str(op.operands[0].type) == "i8" and _enclosing_linalg(op) not in kept,
        )
        for op in found:
            t = op.results[0].type
            with ir.InsertionPoint(op), op.location:
                sign = arith.constant(t, 128)
                wide = arith.extui(t, op.operands[0])
                op.results[0].replace_all_uses_with(arith.subi(arith.xori(wide, sign), sign))
            op.erase()


def _enclosing_linalg(op: OpLike) -> OpLike:
    """The closest linalg op whose body contains `op`; None if there is none."""
    parent = op.parent
    while parent is not None:
        operation = parent.operation
        if operation.name.startswith("linalg."):
            return operation
        parent = operation.parent
    return None
