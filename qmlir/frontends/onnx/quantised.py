"""Which operators of ONNX are quantised: those that must not be left without a warning."""

from __future__ import annotations

_WORDS = ("QLinear", "Quantize", "Dequantize", "MatMulInteger", "ConvInteger", "NBits", "DynamicQuantize")
_OTHERS = {"com.microsoft.QGemm", "com.microsoft.QAttention", "com.microsoft.QEmbedLayerNormalization",
           "com.microsoft.QMoE", "com.microsoft.GatherBlockQuantized", "com.microsoft.MatMulFpQ4",
           "com.microsoft.MatMulBnb4", "com.microsoft.DynamicQuantizeLSTM"}  # fmt: skip


def is_quantised(op_type: str) -> bool:
    """`op_type` with its domain in front unless it is the default one."""
    return op_type in _OTHERS or any(w in op_type.rpartition(".")[2] for w in _WORDS)
