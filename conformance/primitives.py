"""Ops of `linalg`, `arith` and `tensor` that cases and networks need around the quantised ops: how each is emitted, and
its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qmlir import TensorSpec

Array = Any


def type_of(spec: TensorSpec) -> Any:
    from qmlir.dialect.ops.common import tensor_type

    return tensor_type(spec.shape, spec.dtype)


@dataclass(frozen=True)
class Primitive:
    """`emit(values, specs, attributes)` gives each result with its spec; values and specs are by operand name."""

    emit: Callable[[Any, Any, Any], list[tuple[Any, TensorSpec]]]
    reference: Callable[..., Array]


def _to_i32(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    from qmlir.core.mlir import arith

    spec = TensorSpec(specs["input"].shape, "i32")
    return [(arith.fptosi(type_of(spec), values["input"]), spec)]


def _multiply(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    from qmlir.core.mlir import arith

    return [(arith.mulf(values["input"], values["factor"]), specs["input"])]


def _max_pool(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    """Max pooling of i8 NHWC images: 3x3 windows, stride 2, padding 1."""
    from qmlir.core.mlir import arith, ir, linalg, tensor

    n, h, w, c = specs["input"].shape
    i8 = ir.IntegerType.get_signless(8)
    low = arith.constant(i8, -128)
    padded = tensor.PadOp(
        type_of(TensorSpec((n, h + 2, w + 2, c), "i8")), values["input"], [], [], [0, 1, 1, 0], [0, 1, 1, 0]
    )
    block = padded.region.blocks.append(*[ir.IndexType.get()] * 4)
    with ir.InsertionPoint(block):
        tensor.YieldOp(low)
    spec = TensorSpec((n, h // 2, w // 2, c), "i8")
    out = linalg.fill(low, outs=[tensor.empty(spec.shape, i8)])
    window = tensor.empty((3, 3), i8)
    pooled = linalg.pooling_nhwc_max(padded.result, window, outs=[out], strides=[2, 2], dilations=[1, 1])
    return [(pooled, spec)]


def _max_pool_reference(input: Array) -> Array:
    x = np.pad(input, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
    return windows.max(axis=(-2, -1))


def _sum_pixels(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    """The sums of codes over H and W: i8 [N, H, W, C] to f32 [N, C]."""
    from qmlir.core.mlir import arith, ir, linalg, tensor

    n, h, w, c = specs["input"].shape
    i32 = ir.IntegerType.get_signless(32)
    zero = linalg.fill(arith.constant(i32, 0), outs=[tensor.empty((n, 1, 1, c), i32)])
    window = tensor.empty((h, w), i32)
    total = linalg.pooling_nhwc_sum(values["input"], window, outs=[zero], strides=[1, 1], dilations=[1, 1])
    flat = ir.Operation.create(
        "tensor.collapse_shape",
        results=[type_of(TensorSpec((n, c), "i32"))],
        operands=[total],
        attributes={"reassociation": ir.Attribute.parse("[[0 : i64, 1 : i64, 2 : i64], [3 : i64]]")},
    ).results[0]
    spec = TensorSpec((n, c), "f32")
    return [(arith.sitofp(type_of(spec), flat), spec)]


def _flatten(values: Any, specs: Any, attributes: Any) -> list[tuple[Any, TensorSpec]]:
    """i8 [N, ..] to i8 [N, C]."""
    from qmlir.core.mlir import ir

    shape = specs["input"].shape
    if len(shape) == 2:
        return [(values["input"], specs["input"])]
    spec = TensorSpec((shape[0], int(np.prod(shape[1:]))), "i8")
    axes = ", ".join(f"{i} : i64" for i in range(1, len(shape)))
    flat = ir.Operation.create(
        "tensor.collapse_shape",
        results=[type_of(spec)],
        operands=[values["input"]],
        attributes={"reassociation": ir.Attribute.parse(f"[[0 : i64], [{axes}]]")},
    ).results[0]
    return [(flat, spec)]


PRIMITIVES = {
    # fptosi truncates, as torch's `.to(int32)` does.
    "fptosi": Primitive(_to_i32, lambda input: np.trunc(input).astype(np.int32)),
    "mulf": Primitive(_multiply, lambda input, factor: input * factor),
    "flatten": Primitive(_flatten, lambda input: input.reshape(len(input), -1)),
    "max_pool": Primitive(_max_pool, _max_pool_reference),
    "sum_pixels": Primitive(_sum_pixels, lambda input: input.astype(np.int32).sum((1, 2)).astype(np.float32)),
}
