"""Translates a case, which is in the terms of the system that it comes from, into programs of qmlir ops.

`variants(case)` yields the programs. A field with alternatives (`f16|bf16`, `none|relu`) gives several, so that each
alternative is in at least one of them. Every field is read through `Case`, which detects unread fields, and every word
through a table: a case with an unknown field or word raises `UnknownField` and is never run as something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .aiter import blockscale, gather_scatter, grouped, product
from .aiter_docs import doc_gemm, doc_grouped, doc_int8, doc_moe, doc_sparse
from .case import Case, Draw, UnknownField, Variant
from .composable_kernel import conv, gemm, group
from .convolutions import float_conv, static_conv
from .experts import derived_moe, fused_moe
from .products import choose_and_quantize, choose_qparams, coopmat, dequant_matmul, matmul, requantised, scaled_matmul


def variants(case: dict[str, Any]) -> Iterator[Variant]:
    """The programs of a case. Raises UnknownField and Refused."""
    op = case["op"]
    if op not in _OPS:
        raise UnknownField(f"{case['id']}: op {op!r} has no meaning here; known: {', '.join(sorted(_OPS))}")
    index, count = 0, 1
    while index < count:
        c = Case(case, index)
        made = _OPS[op](c, Draw(f"{c.id}/{index}"))
        c.done()
        yield made
        index, count = index + 1, c.count


_OPS: dict[str, Callable[[Case, Draw], Variant]] = {
    "gemm_requant": gemm,
    "conv2d_requant": conv,
    "grouped_matmul (one of 16 groups)": group,
    "scaled_matmul": scaled_matmul,
    "scaled_matmul split-K": product,
    "batched scaled_matmul": product,
    "scaled_matmul blockscale": blockscale,
    "scaled_matmul_requant": requantised,
    "scaled_matmul / dequant_matmul": coopmat,
    "dequant_matmul": dequant_matmul,
    "matmul": matmul,
    "choose_qparams_dynamic": choose_qparams,
    "choose_qparams+quantize": choose_and_quantize,
    "conv2d_q": static_conv,
    "conv2d_q depthwise": static_conv,
    "conv2d_q pointwise": static_conv,
    "conv2d_q transposed": static_conv,
    "conv2d (float upstream; run as conv2d_q)": float_conv,
    "fused_moe": fused_moe,
    "moe": derived_moe,
    "grouped_matmul with gather/scatter": gather_scatter,
    "grouped_matmul": grouped,
    "gemm_bias": doc_gemm,
    "gemm_gelu": doc_gemm,
    "gemm_relu": doc_gemm,
    "cutlass_gemm alpha/beta": doc_gemm,
    "batched_gemm": doc_gemm,
    "int8_gemm": doc_int8,
    "grouped_gemm": doc_grouped,
    "moe_layer_example": doc_moe,
    "sparse_gemm": doc_sparse,
}
