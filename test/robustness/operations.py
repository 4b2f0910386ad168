"""Bad arguments of operations: values that would be truncated, and ranks, types, sizes and values that do not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from robustness.case import Case, Feed

import qmlir
from qmlir.errors import QmlirError, UsageError, VerifyError
from qmlir.spec import TensorSpec as T

# Name -> a valid call: operation, operands, attributes.
F = "f32"
CALLS: dict[str, tuple[str, dict[str, T], dict[str, Any]]] = {
    "requantised": ("scaled_matmul", {
        "lhs": T((4, 64), "i8"), "rhs": T((64, 8), "i8"), "lhs_scale": T((4, 1), F), "rhs_scale": T((1, 8), F),
        "lhs_zero_point": T((), "i32"), "rhs_zero_point": T((), "i32"), "bias": T((8,), F), "out_scale": T((), F),
        "out_zero_point": T((), "i32")}, {"out_dtype": "i8"}),
    "packed": ("scaled_matmul", {
        "lhs": T((4, 64), "u8"), "rhs": T((8, 32), "u8"), "lhs_scale": T((4, 2), F), "rhs_scale": T((8, 2), F),
        "rhs_zero_point": T((8, 2), "i32"), "act_scale": T((), F)},
        {"rhs_dtype": "u4", "rhs_packing": "low_first", "rhs_transposed": True}),
    "codebook": ("scaled_matmul", {"lhs": T((4, 64), F), "rhs": T((64, 8), "u8"), "codebook": T((16,), F)},
                 {"rhs_dtype": "codebook"}),
    "fp8": ("scaled_matmul", {
        "lhs": T((4, 64), "e4m3"), "rhs": T((64, 8), "e4m3"), "lhs_scale": T((4, 2), F), "rhs_scale": T((2, 8), F),
        "lhs_global_scale": T((), F), "rhs_global_scale": T((), F)}, {}),
    "conv2d_q": ("conv2d_q", {
        "input": T((1, 8, 8, 16), "i8"), "weight": T((8, 3, 3, 16), "i8"), "input_scale": T((), F),
        "weight_scale": T((8, 1, 1, 1), F), "bias": T((8,), F), "input_zero_point": T((), "i32"),
        "weight_zero_point": T((8, 1, 1, 1), "i32"), "out_scale": T((), F), "out_zero_point": T((), "i32")},
        {"out_dtype": "i8"}),
    "routed": ("grouped_matmul", {
        "lhs": T((8, 64), "i8"), "rhs": T((4, 64, 8), "i8"), "expert_ids": T((8, 1), "i32"), "lhs_scale": T((8, 1), F),
        "rhs_scale": T((4, 1, 8), F), "bias": T((4, 8), F)}, {}),
    "weighted": ("grouped_matmul", {
        "lhs": T((8, 64), "i8"), "rhs": T((4, 64, 8), "i8"), "expert_ids": T((8, 1), "i32"),
        "routing_weights": T((8, 1), F)}, {}),
    "groups": ("grouped_matmul", {
        "lhs": T((8, 64), "i8"), "rhs": T((4, 64, 8), "i8"), "group_sizes": T((4,), "i32"), "lhs_scale": T((8, 1), F),
        "rhs_scale": T((4, 1, 8), F)}, {}),
    "moe": ("moe", {
        "input": T((8, 64), F), "w1": T((4, 64, 32), "i8"), "w2": T((4, 32, 64), "i8"), "expert_ids": T((8, 2), "i32"),
        "routing_weights": T((8, 2), F), "w1_scale": T((4, 1, 32), F), "w2_scale": T((4, 1, 64), F)}, {}),
    "dequantize": ("dequantize", {"input": T((8, 64), "i8"), "scale": T((8, 1), F), "zero_point": T((8, 1), "i32")},
                   {}),
    "quantize": ("quantize", {"input": T((8, 64), F), "scale": T((8, 1), F), "zero_point": T((8, 1), "i32")},
                 {"out_dtype": "i8"}),
    "dynamic_quantize": ("dynamic_quantize", {"input": T((8, 64), F)}, {}),
    "unpack": ("unpack", {"input": T((8, 64), "u8")}, {"dtype": "u4"}),
    "route": ("route", {"logits": T((8, 4), F)}, {"topk": 2}),
    "moe_align_block_size": ("moe_align_block_size", {"expert_ids": T((8, 2), "i32")},
                             {"block_size": 16, "experts": 4}),
}  # fmt: skip

LHS, RHS, IMAGE = np.ones((2, 8), np.int8), np.ones((8, 4), np.int8), np.ones((1, 5, 5, 2), np.int8)
PRODUCT = ("scaled_matmul", (LHS, RHS))
ARGUMENTS = {
    # Truncated to an integer, these would give other results.
    "rhs_zero_point=2.7": (*PRODUCT, {"rhs_zero_point": 2.7}, "must be integer in mode 'int'"),
    "out_zero_point=1.5": (*PRODUCT, {"out_zero_point": 1.5, "out_dtype": "i8"}, "'out_zero_point'"),
    "zero_point=1.9": ("quantize", (LHS.astype(np.float32), 0.5, 1.9), {}, "'zero_point' must be a ranked tensor"),
    "a zero point of nan": ("dequantize", (LHS, 0.5, float("nan")), {}, "must be integer in mode 'int'"),
    "a wide zero point": (*PRODUCT, {"rhs_zero_point": 2**40}, "rhs_zero_point=1099511627776 does not fit i32"),
    "group_size=4.5": (*PRODUCT, {"group_size": 4.5}, "group_size=4.5 must be an integer"),
    "groups=1.2": ("conv2d_q", (IMAGE, IMAGE), {"groups": 1.2}, "groups=1.2 must be an integer"),
    "strides=2": ("conv2d_q", (IMAGE, IMAGE), {"strides": 2}, "strides=2 must be an array of 2 i64 integers"),
    "strides=(1.5, 1)": ("conv2d_q", (IMAGE, IMAGE), {"strides": (1.5, 1)}, "must be an array of 2 i64 integers"),
    "clamp=(-3.5, 3.5)": (*PRODUCT, {"clamp": (-3.5, 3.5)}, "must be an array of 2 i64 integers"),
    "act_clamp=('a', 'b')": (*PRODUCT, {"act_clamp": ("a", "b")}, "must be an array of 2 f64 floats"),
    "alpha='2'": (*PRODUCT, {"alpha": "2"}, "alpha='2' must be a float"),
    "rhs_transposed='false'": (*PRODUCT, {"rhs_transposed": "false"}, "must be a bool"),
    "topk=True": ("route", (LHS.astype(np.float32),), {"topk": True}, "topk=True must be an integer"),
    "activation=3": (*PRODUCT, {"activation": 3}, "activation=3 is not known; known: none, relu"),
    "out_dtype='i3'": (*PRODUCT, {"out_dtype": "i3"}, "out_dtype='i3' is not known; did you mean 'i32'"),
}  # fmt: skip

SHAPES: list[tuple[str, str, tuple[int, ...], str]] = [
    ("requantised", "lhs", (64,), r"^scaled_matmul: 'lhs' and 'rhs' must have at least two axes, but are"),
    ("routed", "expert_ids", (8,), r"^grouped_matmul: 'expert_ids' has shape \[8\], but must be \[T, topk\]"),
    ("groups", "rhs", (64, 8), r"^grouped_matmul: needs 'lhs' \[M, K\] and 'rhs' \[G, K, N\] or \[G, N, K\]"),
    ("moe", "w2", (32, 64), r"^moe: 'w1' and 'w2' must have three axes, experts first"),
    ("moe", "w2", (4, 16, 64), r"'w1' \[4, 64, 32\] gives 32 columns, but 'w2' \[4, 16, 64\] takes 16 rows"),
    ("moe_align_block_size", "expert_ids", (8,), r"'expert_ids' has shape \[8\], but must be \[T, topk\]"),
    ("dynamic_quantize", "input", (), "^dynamic_quantize: 'input' is a scalar; use granularity 'tensor'"),
]  # fmt: skip
CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("moe", {"input": T((8, 64), "i4")}, r"^moe: input_dtype='i4' is not known; did you mean 'i8'"),
    ("moe", {"input": T((), "i4")}, r"^moe: input_dtype='i4' is not known; did you mean 'i8'"),
    ("weighted", {"rhs": T((0, 64, 8), "i8")}, r"axis 0 of 'rhs' \[0, 64, 8\], must be static and at least 1"),
    ("route", {"topk": -1}, "^route: 'topk' is -1"),
    ("route", {"topk": None}, "^route needs the argument 'topk'"),
    ("unpack", {"dtype": None}, "^unpack needs the argument 'dtype'"),
    ("moe_align_block_size", {"block_size": 0}, "^moe_align_block_size: 'block_size' is 0, but must be at least 1"),
]


def _call(name: str, arrays: tuple[Any, ...], more: dict[str, Any]) -> Any:
    return qmlir.ops.BY_NAME[name](*arrays, **more)


def _compile(call: str, changed: dict[str, Any]) -> Any:
    name, specs, attributes = CALLS[call]
    return getattr(qmlir.ops, name).compile(**{**specs, **attributes, **changed})


FEEDS: dict[str, Feed] = {
    "operation": lambda given, _: _call(*given),
    "compiled operation": lambda given, _: _compile(*given),
}
REFUSED = (UsageError, VerifyError)
CASES = [
    *(Case("operation", name, (op if op != "dequantize" else "dequant", arrays, more), QmlirError, re.escape(message))
      for name, (op, arrays, more, message) in ARGUMENTS.items()),
    *(Case("compiled operation", f"{call}-{operand}{shape}", (call, {operand: T(shape, CALLS[call][1][operand].dtype)}),
           REFUSED, message) for call, operand, shape, message in SHAPES),
    *(Case("compiled operation", f"{call}-{changed}", (call, changed), REFUSED, message)
      for call, changed, message in CHANGES),
]  # fmt: skip
