"""The attribute vocabulary of the dialect. Nothing that changes a result is implicit: each choice is one
of these words, stated on the op. Meanings are those of docs/semantics.md."""

from __future__ import annotations

ROUNDING = ("half_even", "half_away", "trunc")
ZERO_MODE = ("none", "int", "offset_int", "offset_float", "rescale", "packed_int")
PACKING = ("none", "low_first", "high_first", "interleaved")
ACTIVATION = (
    "none",
    "relu",
    "relu6",
    "gelu",
    "gelu_tanh",
    "silu",
    "tanh",
    "clamp",
    "swiglu",
    "geglu",
)
GATED = ("swiglu", "geglu")
GATE_LAYOUT = ("halves", "interleaved")
BIAS_STAGE = ("acc", "scaled", "out")
RECIPE = ("torchao", "onnx", "fbgemm", "amax")
GRANULARITY = ("tensor", "token", "group")
INPUT_LAYOUT = ("NHWC", "NCHW")
FILTER_LAYOUT = ("FHWC", "HWCF", "FCHW")
SCORING = ("softmax", "sigmoid")
ROUTING_STAGE = ("output", "input")
