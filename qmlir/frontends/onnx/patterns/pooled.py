"""MaxPool of floats and of codes, for the operator's pattern and for quantisations that move in front of a MaxPool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....core.faults import Fault
from ....core.mlir import arith
from ....ir import build
from ....ir.barriers import Reason, fusion_barrier
from ....ir.scalars import i32
from ....spec import TensorSpec
from ...raising import Tensor
from ...tensors import elementwise, number
from ..model import refuse
from ..node import Node

LOWEST = {"f16": -np.inf, "f32": -np.inf, "f64": -np.inf, "i8": -128}


FAULTS = (
    Fault(
        "IREE cannot round an f64 number outside of a kernel, and torch-mlir's padding value of a MaxPool with "
        "uneven pads is such a number.",
        canary="rounded_padding",
        upstream="https://github.com/iree-org/iree/issues/20022",
    ),
)


def pooled_codes(op: Node, x: Tensor) -> Tensor:
    """The MaxPool `op` of codes, which are converted to f32 for it and back; this is exact."""
    numbers = elementwise(lambda v: number(v, x.dtype), [x], "f32")
    numbers = Tensor(numbers.spec, fusion_barrier(numbers.value, Reason.POOLED))
    pooled = max_pooled(op, numbers)
    return elementwise(lambda v: arith.trunci(build.element("i8"), arith.fptosi(i32(), v)), [pooled], x.dtype)


def max_pooled(op: Node, x: Tensor) -> Tensor:
    """The MaxPool `op` of a tensor, which is padded first if its pads are uneven. This does not use ONNX's Pad or the
    padding of torch-mlir's pooling, which pad with a rounded f64 number that IREE 3.13 does not compile outside of a
    kernel."""
    import onnx

    pads = uneven_pads(op, x)
    if not pads:
        plain: Tensor = op.graph.torch_op("MaxPool", [x], op.proto.attribute, op)
        return plain
    half = len(pads) // 2
    low, high = [0, 0, *pads[:half]], [0, 0, *pads[half:]]
    if op.attributes.get("ceil_mode", 0):
        high = [0, 0, *_covered_padding(op, x, pads)]
    value = build.pad(x.value, low, high, build.scalar(LOWEST[x.dtype], build.element(x.dtype)))
    shape = tuple(None if s is None else s + a + b for s, a, b in zip(x.shape, low, high, strict=True))
    names = ("dilations", "kernel_shape", "strides")
    kept = [onnx.helper.make_attribute(k, v) for k, v in op.attributes.items() if k in names]
    made: Tensor = op.graph.torch_op("MaxPool", [Tensor(TensorSpec(shape, x.dtype), value)], kept, op)
    return made


def _covered_padding(op: Node, x: Tensor, pads: Sequence[int]) -> list[int]:
    """The padding after each axis that the windows of `ceil_mode` cover; the last window begins before that padding.
    Source: ONNX, MaxPool, `ceil_mode`."""
    a, space = op.attributes, len(pads) // 2
    strides, dilations = (list(a.get(n, [1] * space)) for n in ("strides", "dilations"))
    found = []
    for i, (k, s, d, size) in enumerate(zip(a["kernel_shape"], strides, dilations, x.shape[2:], strict=True)):
        if size is None:
            raise refuse(f"{op.op_type} with ceil_mode and uneven pads of a dynamic size is not imported", op.where)
        reach, before = d * (k - 1) + 1, size + pads[i]
        windows = -(-(before + pads[space + i] - reach) // s) + 1
        windows -= (windows - 1) * s >= before
        found.append(max((windows - 1) * s + reach - before, 0))
    return found


def uneven_pads(op: Node, x: Tensor) -> list[int]:
    """The pads of a pooling before each axis, then after each; empty if they are stated and even. Source: ONNX,
    MaxPool, `auto_pad`."""
    kernel = [int(k) for k in op.attributes["kernel_shape"]]
    how, space = op.attributes.get("auto_pad", "NOTSET"), len(kernel)
    if how == "VALID":
        return [0] * 2 * space
    if how == "NOTSET":
        pads = [int(p) for p in op.attributes.get("pads", [0] * 2 * space)]
        return pads if pads[:space] != pads[space:] else []
    strides, dilations = (list(op.attributes.get(n, [1] * space)) for n in ("strides", "dilations"))
    total = []
    for k, s, d, size in zip(kernel, strides, dilations, x.shape[2:], strict=True):
        if size is None:
            raise refuse(f"{op.op_type} with auto_pad {how} of a dynamic size is not imported; state pads", op.where)
        total.append(max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0))
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return small + large if how == "SAME_UPPER" else large + small
