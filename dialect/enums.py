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
RECIPE = ("torchao", "onnx", "fbgemm", "amax", "aiter")
# Those without a zero point whatever the codes, with `s = max|x| / hi`.
SYMMETRIC_RECIPES = ("amax", "aiter")
# Those that divide by the scale; the others multiply by its reciprocal.
DIVIDING_RECIPES = ("onnx", "aiter")
GRANULARITY = ("tensor", "token", "group")
INPUT_LAYOUT = ("NHWC", "NCHW")
FILTER_LAYOUT = ("FHWC", "HWCF", "FCHW")
SCORING = ("softmax", "sigmoid")
ROUTING_STAGE = ("output", "input")
SPARSE_FORMAT = ("csr", "coo", "bsr", "2:4")
# Types whose code 0 is the real value 0 (1-bit codes have none: what is not stored is 0 all the same).
SPARSE_VALUES = ("i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "e2m1", "f32", "f16", "bf16", "e4m3", "e5m2",
                 "e4m3fnuz", "e5m2fnuz")  # fmt: skip
