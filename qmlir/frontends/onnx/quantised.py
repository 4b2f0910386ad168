"""Which ONNX operators are quantised: these must not be left without a warning."""

from __future__ import annotations

_WORDS = ("QLinear", "Quantize", "Dequantize", "MatMulInteger", "ConvInteger", "NBits", "DynamicQuantize")
_OTHERS = {"com.microsoft.QGemm", "com.microsoft.QAttention", "com.microsoft.QEmbedLayerNormalization",
           "com.microsoft.QMoE", "com.microsoft.GatherBlockQuantized", "com.microsoft.MatMulFpQ4",
           "com.microsoft.MatMulBnb4", "com.microsoft.DynamicQuantizeLSTM"}  # fmt: skip
# What to use instead of an operator that has no pattern.
_REMEDIES = {
    "com.microsoft.MatMulFpQ4": "MatMulNBits is imported: its quantiser is MatMulNBitsQuantizer",
}


def is_quantised(op_type: str) -> bool:
    """Whether an operator is quantised. `op_type` has its domain in front, unless it is the default domain."""
    return op_type in _OTHERS or any(w in op_type.rpartition(".")[2] for w in _WORDS)


def no_pattern(op_type: str) -> str:
    """Why an operator without a pattern is not imported, and what to use instead."""
    remedy = _REMEDIES.get(op_type)
    return "there is no raising pattern for it" + (f"; {remedy}" if remedy else "")
