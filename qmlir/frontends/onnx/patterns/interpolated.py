"""Resize with `align_corners` by scales whose products with the sizes are not integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith, math
from ....ir import build
from ....ir.scalars import clamp, const, cubic_weight
from ...raising import Tensor
from ...tensors import elementwise
from ..model import refuse
from ..node import Node
from .common import ints, onnx_op

if TYPE_CHECKING:
    from ....core.mlir import ir

INFINITE = float("inf")


def interpolated(op: Node, x: Tensor, scales: Tensor) -> Tensor:
    """Resize with `align_corners` by any scales, which may be known only at run time: along each axis a weighted sum of
    gathered elements. Source: onnx/reference/ops/op_resize.py."""
    a, spec = op.attributes, op.results[0]
    mode, sizes = a.get("mode", "nearest"), None if spec is None else spec.shape
    if mode not in ("linear", "cubic") or a.get("exclude_outside", 0) or a.get("antialias", 0) or "axes" in a:
        raise refuse(f"Resize with align_corners in mode {mode!r} by scales that do not give whole sizes is not "
                     "imported with these attributes; give sizes", op.where)  # fmt: skip
    if x.dtype != "f32" or sizes is None or None in (*x.shape, *sizes):
        raise refuse("Resize with align_corners by scales that do not give whole sizes needs f32 and static shapes; "
                     "give sizes", op.where)  # fmt: skip
    sharpness = float(a.get("cubic_coeff_a", -0.75))
    for axis, (n, size) in enumerate(zip(x.shape, sizes, strict=True)):
        assert n is not None
        assert size is not None
        if n == size == 1:
            continue
        last, rank = float(n - 1), len(x.shape)
        factor = onnx_op(op, "Gather", scales, Tensor.constant(np.asarray(axis, np.int64)), axis=0)
        steps = Tensor.constant(np.arange(size, dtype=np.float32))

        def place(i: ir.Value, f: ir.Value, n: int = n, last: float = last) -> ir.Value:
            ends = arith.subf(arith.mulf(f, const(float(n))), const(1.0))
            one = arith.cmpf(arith.CmpFPredicate.OEQ, ends, const(0.0))
            return arith.divf(arith.mulf(i, const(last)), arith.select(one, const(INFINITE), ends))

        places = elementwise(place, [steps, factor], "f32")
        total = None
        for tap in range(2) if mode == "linear" else range(-1, 3):

            def index(p: ir.Value, tap: int = tap, last: float = last) -> ir.Value:
                at = arith.addf(math.floor(p), const(float(tap)))
                return arith.fptosi(build.element("i64"), clamp(at, 0.0, last))

            def weight(p: ir.Value, tap: int = tap) -> ir.Value:
                away = math.absf(arith.subf(arith.subf(p, math.floor(p)), const(float(tap))))
                return arith.subf(const(1.0), away) if mode == "linear" else cubic_weight(away, sharpness)

            taken = onnx_op(op, "Gather", x, elementwise(index, [places], "i64"), axis=axis)
            shape = ints([size if i == axis else 1 for i in range(rank)])
            part = onnx_op(op, "Mul", taken, onnx_op(op, "Reshape", elementwise(weight, [places], "f32"), shape))
            total = part if total is None else onnx_op(op, "Add", total, part)
        assert total is not None
        x = total
    return x
