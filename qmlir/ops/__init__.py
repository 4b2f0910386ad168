"""The operations as functions: eager calls on arrays, and ahead-of-time compilation.

`qmlir.ops.scaled_matmul(lhs, rhs, lhs_scale=..., target="cpu")` compiles once per signature (the program is kept in
memory and in the cache on disk) and runs. `.compile(...)` takes `TensorSpec`s for arguments of the program and
arrays for constants, such as weights, and returns an artifact. Keyword arguments are the operands and attributes of the
dialect's op, as for the functions of `qmlir.reference`.
"""

from __future__ import annotations

import warnings

from ..core.spelling import did_you_mean
from ..dialect.ops import (
    Conv2dQOp,
    DequantOp,
    DynamicQuantizeOp,
    GroupedMatmulOp,
    MoeAlignBlockSizeOp,
    MoeOp,
    QuantizeOp,
    RouteOp,
    ScaledMatmulOp,
    SparseMatmulOp,
    UnpackOp,
)
from ..errors import Diagnostic, UsageError, VerifyError
from .operation import Operation
from .sparse_operation import SparseOperation

scaled_matmul = Operation(ScaledMatmulOp)

grouped_matmul = Operation(GroupedMatmulOp)

sparse_matmul = SparseOperation(SparseMatmulOp)

conv2d_q = Operation(Conv2dQOp)

moe = Operation(MoeOp)

route = Operation(RouteOp)

moe_align_block_size = Operation(MoeAlignBlockSizeOp)

quantize = Operation(QuantizeOp)

dynamic_quantize = Operation(DynamicQuantizeOp)

dequantize = Operation(DequantOp)

unpack = Operation(UnpackOp)

__all__ = ["Diagnostic", "Operation", "VerifyError", "conv2d_q", "dequantize", "dynamic_quantize", "grouped_matmul",
           "moe", "moe_align_block_size", "quantize", "route", "scaled_matmul", "sparse_matmul", "unpack"]  # fmt: skip

# By the name of the dialect's op.
BY_NAME: dict[str, Operation] = {o.name: o for o in list(globals().values()) if isinstance(o, Operation)}
# Also by function name, which differs from the op's name if the op kept its former one (`dequant`, of `dequantize`).
BY_EITHER_NAME: dict[str, Operation] = {**{o.__name__: o for o in BY_NAME.values()}, **BY_NAME}


def named(name: str) -> Operation:
    """The operation with this function name or op name.

    Raises UsageError."""
    if name not in BY_EITHER_NAME:
        raise UsageError(f"there is no operation {name!r}{did_you_mean(name, BY_EITHER_NAME)}")
    return BY_EITHER_NAME[name]


def __getattr__(name: str) -> Operation:
    if name == "dequant":
        warnings.warn("qmlir.ops.dequant is deprecated: use dequantize", DeprecationWarning, stacklevel=2)
        return dequantize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
