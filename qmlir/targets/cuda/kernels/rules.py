"""Scalar ops that NVIDIA GPUs have a better form for than the one that IREE's lowering gives them."""

from __future__ import annotations

from typing import Any

from ....kernels.bodies import BodyCloner, Rule
from ....kernels.emit import intrinsic


def _roundeven(cloner: BodyCloner, op: Any, operands: list[Any]) -> Any:
    """`cvt.rni`: `llvm.intr.roundeven` is illegal on vectors in IREE 3.13's conversion, the call of it is not."""
    return intrinsic("llvm.roundeven", operands, operands[0].type)


RULES: dict[str, Rule] = {"math.roundeven": _roundeven}
