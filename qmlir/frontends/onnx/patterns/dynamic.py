"""Operators that quantise their input at run time."""

from __future__ import annotations

import numpy as np
import onnx

from ....core.mlir import arith
from ....ir import build
from ...raising import Tensor, raises
from ...tensors import elementwise
from ..node import Node
from .common import Parts


@raises("onnx.DynamicQuantizeLinear")
def dynamic_quantize_linear(op: Node) -> list[Tensor]:
    """`dynamic_quantize`: u8 codes, one scale and one zero point, from the range of the data extended to 0."""
    codes, scale, zero = op.build("dynamic_quantize", input=op.operand(0), granularity="tensor", recipe="onnx",
                                  symmetric=False, out_dtype="u8")  # fmt: skip
    return [codes, scale, elementwise(lambda z: arith.trunci(build.element("u8"), z), [zero], "u8")]


@raises("onnx.com.microsoft.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(op: Node) -> list[Tensor]:
    """A float LSTM with weights that are dequantised at compile time. onnxruntime quantises the other operand of its
    products at every step, which is less accurate."""
    op.left("its products are of floats: the other operand changes its scale at every step")
    parts = Parts(op)
    weights = []
    for i, scale, zero in ((1, 8, 9), (2, 10, 11)):
        codes, s = op.constant(i), op.constant(scale)
        z = op.constant(zero) if op.optional(zero) is not None else np.zeros_like(s)
        s, z = (a.reshape(codes.shape[0], 1, -1).astype(np.float32) for a in (s, z))
        number = ((codes.astype(np.float32) - z) * s).transpose(0, 2, 1)
        weights.append(parts.add("Constant", value=onnx.numpy_helper.from_array(np.ascontiguousarray(number))))
    parts.add("LSTM", op.proto.input[0], *weights, *op.proto.input[3:8], **op.attributes)
    return list(parts.done())
