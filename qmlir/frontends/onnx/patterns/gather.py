"""com.microsoft.GatherBlockQuantized: gathers rows of a block-quantised table, for example of an embedding.

Source: onnxruntime, docs/ContribOperators.md, GatherBlockQuantized: blocks along `quantize_axis`, rows gathered along
`gather_axis`; u8 data holds codes of `bits` bits along its last axis, low bits first, and their zero point defaults to
half of their range.
"""

from __future__ import annotations

import numpy as np

from ....dialect.dtypes import Array
from ....dialect.reference.packing import unpack
from ...raising import PatternDeclined, Tensor, raises
from ..node import Node

_PACKED = {2: "u2", 4: "u4", 8: "u8"}


@raises("onnx.com.microsoft.GatherBlockQuantized")
def gather_block_quantized(op: Node) -> Tensor:
    """(data, indices, scales, zero_points?)."""
    import onnx

    data, scales = op.operand(0), op.constant(2)
    codes, bits = op.constant(0), int(op.attributes.get("bits", 4))
    rank = codes.ndim
    gather, axis = (int(op.attributes.get(n, d)) % rank for n, d in (("gather_axis", 0), ("quantize_axis", 1)))
    block = int(op.attributes.get("block_size", 128))
    packed = data.dtype == "u8"
    dtype = _PACKED.get(bits, "") if packed else data.dtype
    if not dtype:
        raise PatternDeclined(f"codes of {bits} bits; {', '.join(map(str, _PACKED))} are raised")
    if gather or axis != rank - 1:
        raise PatternDeclined(f"gather_axis {gather} and quantize_axis {axis}; the first and the last are raised")
    per_byte = 8 // bits if packed else 1
    width = codes.shape[-1] * per_byte
    if packed:
        codes = unpack(codes.view(np.uint8), dtype, "low_first", width)
    if scales.shape != (*codes.shape[:-1], -(-width // block)) or width % block:
        raise PatternDeclined(f"scales of {list(scales.shape)} for rows of {width} codes in whole blocks of {block}")
    zero = _zero_points(op, scales.shape, dtype, packed)
    first = onnx.helper.make_attribute("axis", 0)

    def gathered(table: Tensor) -> Tensor:
        found: Tensor = op.graph.torch_op("Gather", [table, op.operand(1)], [first], op)
        return found

    wide = "i8" if dtype.startswith("i") else "u8"
    rows = gathered(Tensor.constant(codes.astype(np.int8 if wide == "i8" else np.uint8), wide))
    made: Tensor = op.build(
        "dequantize", input=rows, scale=gathered(Tensor.constant(scales.astype(np.float32))),
        zero_point=None if not zero.any() else gathered(Tensor.constant(zero)), dtype=wide,
        out_dtype=op.operand(2).dtype,
    )  # fmt: skip
    return op.sized(made, (*op.named(1), width))


def _zero_points(op: Node, shape: tuple[int, ...], dtype: str, packed: bool) -> Array:
    """The zero points, i32, in the shape of the scales."""
    if op.optional(3) is None:
        return np.full(shape, 1 << (int(dtype[1:]) - 1) if packed else 0, np.int32)
    zero = op.constant(3)
    if packed:
        zero = unpack(zero.view(np.uint8), dtype, "low_first", shape[-1])
    if zero.shape != shape:
        raise PatternDeclined(f"zero points of {list(zero.shape)} for scales of {list(shape)}")
    return zero.astype(np.int32)
