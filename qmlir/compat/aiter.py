"""The quantisation of AITER, with its name and arguments.

AITER's GEMM page once announced `gemm_bias`, `int8_gemm`, `grouped_gemm` and others (docs/api/gemm.rst, pull request
2167 of ROCm/aiter). AITER never had them: they are cases of `conformance`, and operations of `qmlir.ops` compute them.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..dialect.dtypes import SMALL_FLOATS
from ._arguments import dtype_name, operand

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


def __getattr__(name: str) -> Any:
    if name in _ANNOUNCED:
        raise AttributeError(f"AITER has no function {name!r}; use qmlir.ops.{_ANNOUNCED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def pertoken_quant(x: Any, quant_dtype: Any = "i8", *, target: str = "cpu") -> tuple[Any, Any]:
    """Codes and scales of each row: `scale = amax / largest`, 1 for a row of zeros, and `x / scale`, truncated (int8).

    Source: `pertoken_quant` of aiter/ops/quant.py, ROCm/aiter, commit 0164c2f. It has no `scale`, `x_scale`,
    `scale_dtype` and `dtypeMax` here.

    Args:
        x: `[.., K]` f32, f16 or bf16.
        quant_dtype: i8, or an 8-bit float, whose codes are rounded half to even.

    Returns:
        Codes `[.., K]` and f32 scales `[.., 1]`.

    Raises:
        UsageError, VerifyError: dtypes and shapes that do not fit.
    """
    name = dtype_name(quant_dtype, "quant_dtype", ("i8", *SMALL_FLOATS))
    found: tuple[Any, Any] = ops.dynamic_quantize(
        operand(x, "x"),
        recipe="aiter",
        rounding="trunc" if name == "i8" else "half_even",
        out_dtype=name,
        target=target,
    )
    return found
