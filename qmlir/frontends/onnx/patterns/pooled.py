"""MaxPool of codes, for the pattern of the operator and for a quantisation that moves in front of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.mlir import arith
from ....ir import build
from ....ir.scalars import i32
from ...raising import Tensor
from ...tensors import elementwise, number


def pooled_codes(op: Any, x: Tensor, attributes: Sequence[Any]) -> Tensor:
    """The MaxPool of codes with a node's attributes, at the place of `op`."""
    numbers = elementwise(lambda v: number(v, x.dtype), [x], "f32")
    # Apart: IREE 3.13's SPIR-V route is wrong about a pooling that is fused with what makes its operand.
    numbers = Tensor(numbers.spec, build.apart(numbers.value))
    pooled = op.graph.torch_op("MaxPool", [numbers], attributes, op)
    return elementwise(lambda v: arith.trunci(build.element("i8"), arith.fptosi(i32(), v)), [pooled], x.dtype)
