"""DynamicQuantizeLinear."""

from __future__ import annotations

from ....core.mlir import arith
from ....ir import build
from ...raising import Tensor, raises
from ...tensors import elementwise
from ..node import Node


@raises("onnx.DynamicQuantizeLinear")
def dynamic_quantize_linear(op: Node) -> list[Tensor]:
    """`dynamic_quantize`: u8 codes, one scale and one zero point, from the range of the data extended to 0."""
    codes, scale, zero = op.build("dynamic_quantize", input=op.operand(0), granularity="tensor", recipe="onnx",
                                  symmetric=False, out_dtype="u8")  # fmt: skip
    return [codes, scale, elementwise(lambda z: arith.trunci(build.element("u8"), z), [zero], "u8")]
