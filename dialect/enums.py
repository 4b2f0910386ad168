"""The values of the dialect's enumerated attributes, which docs/semantics.md defines. Nothing that changes a result is
implicit: an op states each choice as one of these words."""

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
# Recipes that never have a zero point; their scale is `s = max|x| / hi`.
SYMMETRIC_RECIPES = ("amax", "aiter")
# Recipes that divide by the scale; the others multiply by its reciprocal.
DIVIDING_RECIPES = ("onnx", "aiter")
GRANULARITY = ("tensor", "token", "group")
INPUT_LAYOUT = ("NHWC", "NCHW")
FILTER_LAYOUT = ("FHWC", "HWCF", "FCHW")
SCORING = ("softmax", "sigmoid")
ROUTING_STAGE = ("output", "input")
SPARSE_FORMAT = ("csr", "coo", "bsr", "2:4")
# Dtypes whose code 0 is the real value 0. Codes of i1 are -1 and 1, but entries that are not stored are 0 here too.
SPARSE_VALUES = ("i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "e2m1", "f32", "f16", "bf16", "e4m3", "e5m2",
                 "e4m3fnuz", "e5m2fnuz")  # fmt: skip
