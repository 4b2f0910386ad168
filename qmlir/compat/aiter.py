"""AITER's `pertoken_quant`, with its name and arguments.

AITER's GEMM page once announced `gemm_bias`, `int8_gemm`, `grouped_gemm` and others (docs/api/gemm.rst, pull request
2167 of ROCm/aiter). AITER never had them: they are cases of `conformance`, and operations of `qmlir.ops` compute them.
"""

from __future__ import annotations

from .. import ops
from ..dialect.dtypes import SMALL_FLOATS, dtype_name
from ..errors import UsageError
from ._arguments import ArrayLike, one_of, operand

__all__ = ["pertoken_quant"]

_ANNOUNCED = {
    "batched_gemm": "scaled_matmul",
    "cutlass_gemm": "scaled_matmul",
    "gemm_bias": "scaled_matmul",
    "gemm_gelu": "scaled_matmul",
    "gemm_relu": "scaled_matmul",
    "grouped_gemm": "grouped_matmul",
    "int8_gemm": "scaled_matmul",
    "sparse_gemm": "sparse_matmul",
}


def __getattr__(name: str) -> object:
    if name in _ANNOUNCED:
        raise AttributeError(f"AITER has no function {name!r}; use qmlir.ops.{_ANNOUNCED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def pertoken_quant(
    x: ArrayLike, scale: None = None, x_scale: None = None, scale_dtype: object = "f32", quant_dtype: object = "i8",
    dtypeMax: None = None, *, target: str = "cpu",
) -> tuple[ArrayLike, ArrayLike]:  # fmt: skip
    """`aiter.pertoken_quant` (aiter/ops/quant.py of ROCm/aiter, commit e404860): codes and scales of each row:
    `scale = amax / largest code`, 1 for a row of zeros; codes are `x / scale`, truncated (int8).

    Args:
        x: `[.., K]` f32, f16 or bf16.
        scale, x_scale, dtypeMax: given scales, smooth scales and another largest code; unsupported, must be None.
        scale_dtype: f32.
        quant_dtype: i8, or an 8-bit float, whose codes are rounded half to even.

    Returns:
        Codes `[.., K]` and f32 scales `[.., 1]`.

    Raises:
        UsageError, VerifyError: dtypes and shapes that do not fit, and arguments that are unsupported.
    """
    for argument, value in (("scale", scale), ("x_scale", x_scale), ("dtypeMax", dtypeMax)):
        if value is not None:
            raise UsageError(f"{argument!r} is unsupported: leave it None, or use qmlir.ops.quantize with your scales")
    one_of(dtype_name(scale_dtype), ("f32",), "scale_dtype")
    name = one_of(dtype_name(quant_dtype), ("i8", *SMALL_FLOATS), "quant_dtype")
    found: tuple[ArrayLike, ArrayLike] = ops.dynamic_quantize(
        operand(x, "x"),
        recipe="aiter",
        rounding="trunc" if name == "i8" else "half_even",
        out_dtype=name,
        target=target,
    )
    return found
