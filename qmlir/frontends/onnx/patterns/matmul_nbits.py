"""com.microsoft.MatMulNBits: weights of 2, 4 or 8 bits in blocks along K.

Source: onnxruntime, docs/ContribOperators.md, MatMulNBits: B is `[N, blocks, blob]` bytes, low bits first; scales
`[N, blocks]`; zero points packed `[N, ceil(blocks * bits / 8)]`, or floats of the scales' type; g_idx `[K]` is the
index of the block whose scale an input channel has.
"""

from __future__ import annotations

import math

import numpy as np

from ....dialect.dtypes import Array
from ....dialect.reference.packing import unpack
from ...raising import PatternDeclined, Tensor, raises
from ...tensors import real
from ..node import Node

_CODES = {2: "u2", 4: "u4", 8: "u8"}


@raises("onnx.com.microsoft.MatMulNBits")
def matmul_nbits(op: Node) -> Tensor:
    """(A, B, scales, zero_points?, g_idx?, bias?)."""
    a = op.operand(0)
    k, n, bits, block = (int(op.attributes.get(name, default)) for name, default in
                         (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0)))  # fmt: skip
    if bits not in _CODES:
        raise PatternDeclined(f"codes of {bits} bits; {', '.join(map(str, _CODES))} are raised")
    if k < 1 or n < 1 or block < 1:
        raise PatternDeclined(f"K = {k}, N = {n}, block_size = {block}, which must be positive")
    if len(a.shape) < 2 or (a.shape[-1] is not None and a.shape[-1] != k):
        raise PatternDeclined(f"A is {a.spec}, but K = {k}")
    blocks = -(-k // block)
    dtype = _CODES[bits]
    packed = op.constant(1).reshape(-1).view(np.uint8)
    _check_size("B", packed, n * blocks * (block * bits // 8))
    codes = unpack(packed.reshape(n, -1), dtype, "low_first", blocks * block)[:, :k]
    raw = op.constant(2)
    _check_size("scales", raw, n * blocks)
    scale = raw.reshape(n, blocks).astype(np.float32)
    zero = _zero_points(op, n, blocks, bits, dtype)
    g_idx = op.constant(4) if op.optional(4) is not None else None
    order: Array | None = None
    if g_idx is not None and not np.array_equal(g_idx, np.arange(k) // block):
        order, group, scale, zero = _act_order(g_idx, k, block, scale, zero)
        codes = codes[:, order]
    else:
        group = block if k % block == 0 else math.gcd(block, k)
        scale, zero = _regrouped(scale, block, group, k), _regrouped(zero, block, group, k)
    lhs = a if order is None else _columns(op, a, order)
    arguments: dict[str, object] = {}
    if zero.dtype.kind == "f":
        arguments = {"rhs_zero_point": Tensor.constant(zero * scale), "rhs_zero_mode": "rescale"}
    else:
        arguments = {"rhs_zero_point": Tensor.constant(zero.astype(np.int32)), "rhs_zero_mode": "int"}
    bias = op.optional(5)
    rhs = Tensor.constant(np.ascontiguousarray(codes), dtype)
    made: Tensor = op.build("scaled_matmul", lhs=lhs, rhs=rhs, rhs_transposed=True, rhs_scale=Tensor.constant(scale),
                            bias=None if bias is None else real(bias), out_dtype=a.dtype, **arguments)  # fmt: skip
    return op.sized_as(0, made)


def _check_size(name: str, array: Array, expected: int) -> None:
    if array.size != expected:
        raise PatternDeclined(f"{name} has {array.size} elements, but K, N, bits and block_size need {expected}")


def _zero_points(op: Node, n: int, blocks: int, bits: int, dtype: str) -> Array:
    """`[N, blocks]`: integers, or floats in units of a code."""
    if op.optional(3) is None:
        return np.full((n, blocks), 1 << (bits - 1), np.int64)
    z = op.constant(3)
    if z.dtype.kind == "f":
        _check_size("zero_points", z, n * blocks)
        return np.asarray(z.reshape(n, blocks), np.float32)
    packed = z.reshape(-1).view(np.uint8)
    _check_size("zero_points", packed, n * (-(-blocks * bits // 8)))
    return np.asarray(unpack(packed.reshape(n, -1), dtype, "low_first", blocks), np.int64)


def _regrouped(x: Array, block: int, group: int, k: int) -> Array:
    """One value per group instead of one per block."""
    return np.ascontiguousarray(np.repeat(x, block // group, 1)[:, : k // group])


def _act_order(g_idx: Array, k: int, block: int, scale: Array, zero: Array) -> tuple[Array, int, Array, Array]:
    """The order that sorts input channels by their block, the size of the groups that they then form along K, and the
    scale and zero point of each group."""
    if g_idx.size != k or g_idx.min() < 0 or g_idx.max() >= scale.shape[1]:
        raise PatternDeclined(f"g_idx must hold {k} indices of {scale.shape[1]} blocks")
    order = np.argsort(g_idx, kind="stable")
    counts = np.bincount(g_idx, minlength=scale.shape[1])
    group = math.gcd(*[int(c) for c in counts], k)
    of_group = g_idx[order][::group]
    return order, group, np.ascontiguousarray(scale[:, of_group]), np.ascontiguousarray(zero[:, of_group])


def _columns(op: Node, a: Tensor, order: Array) -> Tensor:
    """The columns of A in the order `order`."""
    import onnx

    axis = onnx.helper.make_attribute("axis", len(a.shape) - 1)
    found: Tensor = op.graph.torch_op("Gather", [a, Tensor.constant(order.astype(np.int64))], [axis], op)
    return found


# The values of FP4's codes without the sign bit, as fractions of the largest magnitude of their block; the codes with
# the sign bit follow. Source: bitsandbytes, functional.py.
_FP4 = np.array([0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12], np.float32)


@raises("onnx.com.microsoft.MatMulBnb4")
def matmul_bnb4(op: Node) -> Tensor:
    """(A, B, absmax): codes of bitsandbytes' NF4 or FP4, high bits first, in blocks along K."""
    a = op.operand(0)
    k, n, block, kind = (int(op.attributes.get(name, 0)) for name in ("K", "N", "block_size", "quant_type"))
    if kind not in (0, 1) or not op.attributes.get("transB", 1):
        raise PatternDeclined(f"quant_type {kind}, or transB = 0")
    if k < 1 or n < 1 or block < 1 or k % block:
        raise PatternDeclined(f"K = {k}, N = {n}, block_size = {block}, which must be positive and divide K")
    packed = op.constant(1).reshape(-1).view(np.uint8)
    _check_size("B", packed, n * k // 2)
    largest = op.constant(2)
    _check_size("absmax", largest, n * k // block)
    codes = unpack(packed.reshape(1, -1), "u4", "high_first", n * k).reshape(n, k)
    made: Tensor = op.build(
        "scaled_matmul", lhs=a, rhs=Tensor.constant(np.ascontiguousarray(codes), "nf4" if kind else "codebook"),
        rhs_scale=Tensor.constant(largest.reshape(n, k // block).astype(np.float32)), rhs_transposed=True,
        codebook=None if kind else Tensor.constant(np.concatenate([_FP4, -_FP4])), out_dtype=a.dtype,
    )  # fmt: skip
    return op.sized_as(0, made)
