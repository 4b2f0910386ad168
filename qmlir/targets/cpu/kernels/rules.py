"""Scalar ops that x86 vectors have a better form for than the one that IREE's lowering gives them."""

from __future__ import annotations

from typing import Any

from ...._mlir import arith, llvm
from ....kernels.bodies import BodyCloner, Rule


def _roundeven(cloner: BodyCloner, op: Any, operands: list[Any]) -> Any:
    """IREE 3.13 expands `math.roundeven` to about 35 instructions; LLVM's intrinsic is one."""
    return llvm.RoundEvenOp(operands[0]).result


def _mulf(cloner: BodyCloner, op: Any, operands: list[Any]) -> Any:
    """A product that LLVM may not contract with a following sum: the epilogues of docs/semantics.md round both."""
    return llvm.ArithmeticFenceOp(arith.mulf(*operands)).result


def _truncf(cloner: BodyCloner, op: Any, operands: list[Any]) -> Any:
    """A rounding that counts: IREE 3.13 takes a conversion to bf16 and back for none."""
    t = cloner.widen(op.results[0].type)
    return llvm.ArithmeticFenceOp(arith.truncf(t, operands[0])).result


RULES: dict[str, Rule] = {"math.roundeven": _roundeven, "arith.mulf": _mulf, "arith.truncf": _truncf}
