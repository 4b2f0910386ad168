"""qmlir-int-to-bf16: conversions of integers to bf16, for x86 CPUs that have no instruction that makes bf16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .._mlir import arith, ir
from .base import Pass, State
from .lower.scalars import bf16_bits, f32

_CONVERSIONS = ("arith.sitofp", "arith.uitofp")


@dataclass(frozen=True)
class IntToBf16Pass(Pass):
    """The conversion goes through f32, whose bits are rounded with integer operations.

    IREE 3.13 expands `arith.truncf` to bf16, but MLIR folds the one of a converted integer into `arith.sitofp` to bf16
    first, which LLVM lowers to a call of `__truncsfbf2`: the program does not link.
    """

    name: ClassVar[str] = "qmlir-int-to-bf16"
    summary: ClassVar[str] = "convert integers to bf16 without a library call"

    def run(self, module: Any, state: State) -> None:
        found: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name in (*_CONVERSIONS, "arith.truncf") and isinstance(op.results[0].type, ir.BF16Type):
                source = op if op.name in _CONVERSIONS else op.operands[0].owner
                if getattr(source, "name", "") in _CONVERSIONS:
                    found.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        for op in found:
            with op.location, ir.InsertionPoint(op):
                value = op.operands[0]
                if op.name in _CONVERSIONS:
                    value = (arith.sitofp if op.name == "arith.sitofp" else arith.uitofp)(f32(), value)
                op.results[0].replace_all_uses_with(arith.bitcast(ir.BF16Type.get(), bf16_bits(value)))
            op.erase()
