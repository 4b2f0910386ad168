"""The functions of AITER's GEMM page, with its argument names and defaults.

Source: docs/api/gemm.rst of ROCm/aiter as first published (pull request 2167). AITER itself has no functions of these
names, as its page says today; they are the interface that was announced. What that page leaves open is settled here:
sums and epilogues are f32, rounded once to the result's type; a bias is added before that rounding (`bias_stage`
'scaled'); GELU is the erf form, as torch's default.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..dialect.dtypes import SMALL_FLOATS
from ..dialect.shapes import show
from ..errors import UsageError
from ..sparse import SparseWeight
from ._arguments import FLOATS, dtype_name, dtype_of, floats, integers, one_of, operand

__all__ = ["batched_gemm", "cutlass_gemm", "gemm_bias", "gemm_gelu", "gemm_relu", "grouped_gemm", "int8_gemm",
           "pertoken_quant", "sparse_gemm"]  # fmt: skip


def _float_pair(a: Any, b: Any, names: tuple[str, str]) -> tuple[Any, Any, str]:
    """Two float operands of one dtype, and that dtype, which is the result's."""
    a, b = operand(a, names[0]), operand(b, names[1])
    found = dtype_of(a, names[0]), dtype_of(b, names[1])
    for name, dtype in zip(names, found, strict=True):
        if dtype not in FLOATS:
            raise UsageError(f"{name!r} must be {', '.join(FLOATS)}, but is {dtype}; int8_gemm takes int8 operands")
    if found[0] != found[1]:
        raise UsageError(f"{names[0]!r} is {found[0]}, but {names[1]!r} is {found[1]}; they must be of one dtype")
    return a, b, found[0]


def grouped_gemm(
    input: Any,
    weights: Any,
    expert_ids: Any,
    topk: int | None = None,
    *,
    routing_weights: Any = None,
    combine: bool = True,
    skip_invalid: bool = False,
    target: str = "cpu",
) -> Any:
    """`out[t] = sum_j w[t, j] * (input[t] @ weights[expert_ids[t, j]])`: the expert products of a mixture of experts.

    The page documents the result `(total_tokens, output_dim)`, while its last example multiplies the result by
    `routing_weights.unsqueeze(-1)`, which needs one row a slot. Both are here: the sum over the slots (default), and
    `combine=False`. Arguments after `topk` are additions.

    Args:
        input: `[T, K]` f32, f16 or bf16; or `[T, topk, K]`, one row a slot, as `combine=False` returns.
        weights: `[E, K, N]` of the same dtype.
        expert_ids: `[T, topk]` integers in `[0, E)`.
        topk: number of experts a token; default: what `expert_ids` says.
        routing_weights: `[T, topk]` factors of the sum; default: ones.
        combine: False keeps the slots apart: `[T, topk, N]`.
        skip_invalid: an id outside `[0, E)` is an unused slot (a row of zeros) instead of an error.

    Returns:
        `[T, N]`, or `[T, topk, N]` without `combine`, in the input's dtype. The sum is f32, in slot order.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
        InputError: an id outside `[0, E)`, with its position.
    """
    input, weights, dtype = _float_pair(input, weights, ("input", "weights"))
    ids = integers(expert_ids, "expert_ids", ("i32", "i64"))
    if ids.ndim != 2:
        raise UsageError(f"'expert_ids' must be [T, topk], but has shape {show(ids.shape)}")
    if topk is not None and topk != ids.shape[1]:
        raise UsageError(f"topk={topk}, but 'expert_ids' {show(ids.shape)} names {ids.shape[1]} experts a token")
    if routing_weights is not None and not combine:
        raise UsageError("routing_weights weigh the sum over the slots, which combine=False leaves out")
    if combine and routing_weights is None:
        routing_weights = np.ones(ids.shape, np.float32)
    return ops.grouped_matmul(
        input,
        weights,
        expert_ids=ids,
        routing_weights=None if routing_weights is None else floats(routing_weights, "routing_weights"),
        skip_invalid=skip_invalid or None,
        out_dtype=dtype,
        target=target,
    )


def batched_gemm(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, *, target: str = "cpu") -> Any:
    """`out[i] = a[i] @ b[i]`.

    Args:
        a: `[B, M, K]` f32, f16 or bf16, or `[B, K, M]` with `transpose_a`.
        b: `[B, K, N]` of the same dtype, or `[B, N, K]` with `transpose_b`.

    Returns:
        `[B, M, N]` in the operands' dtype; f32 sums, rounded once.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    a, b, dtype = _float_pair(operand(a, "a", 3), operand(b, "b", 3), ("a", "b"))
    if a.shape[0] != b.shape[0]:
        raise UsageError(f"'a' {show(a.shape)} and 'b' {show(b.shape)} must have the same number of matrices")
    return ops.scaled_matmul(
        a, b, lhs_transposed=bool(transpose_a), rhs_transposed=bool(transpose_b), out_dtype=dtype, target=target
    )


def _gemm(input: Any, weight: Any, bias: Any, transpose_weight: bool, activation: str | None, target: str) -> Any:
    input, weight, dtype = _float_pair(input, weight, ("input", "weight"))
    return ops.scaled_matmul(
        input,
        weight,
        bias=None if bias is None else floats(bias, "bias"),
        bias_stage=None if bias is None else "scaled",
        rhs_transposed=bool(transpose_weight),
        activation=activation,
        out_dtype=dtype,
        target=target,
    )


def gemm_bias(input: Any, weight: Any, bias: Any, transpose_weight: bool = True, *, target: str = "cpu") -> Any:
    """`input @ weight.T + bias`.

    Args:
        input: `[M, K]` f32, f16 or bf16.
        weight: `[N, K]` of the same dtype, or `[K, N]` with `transpose_weight=False`.
        bias: `[N]` float, added in f32 before the one rounding to the result's type.

    Returns:
        `[M, N]` in the input's dtype.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    return _gemm(input, weight, bias, transpose_weight, None, target)


def gemm_gelu(input: Any, weight: Any, bias: Any = None, *, transpose_weight: bool = True, target: str = "cpu") -> Any:
    """`gelu(input @ weight.T + bias)`, the erf form. Shapes and errors as in `gemm_bias`."""
    return _gemm(input, weight, bias, transpose_weight, "gelu", target)


def gemm_relu(input: Any, weight: Any, bias: Any = None, *, transpose_weight: bool = True, target: str = "cpu") -> Any:
    """`relu(input @ weight.T + bias)`. Shapes and errors as in `gemm_bias`."""
    return _gemm(input, weight, bias, transpose_weight, "relu", target)


def cutlass_gemm(a: Any, b: Any, alpha: float = 1.0, beta: float = 0.0, c: Any = None, *, target: str = "cpu") -> Any:
    """`alpha * (a @ b) + beta * c`, evaluated in f32 and rounded once.

    Args:
        a: `[M, K]` f32, f16 or bf16.
        b: `[K, N]` of the same dtype.
        alpha, beta: numbers.
        c: `[M, N]` (or broadcasting to it) float; not read when `beta` is 0, as in BLAS.

    Returns:
        `[M, N]` in the operands' dtype.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit; `beta` without `c`.
    """
    a, b, dtype = _float_pair(a, b, ("a", "b"))
    if beta != 0 and c is None:
        raise UsageError(f"beta={beta} needs the accumulation matrix 'c'")
    return ops.scaled_matmul(
        a,
        b,
        alpha=float(alpha),
        beta=float(beta),
        c=None if beta == 0 else floats(c, "c"),
        out_dtype=dtype,
        target=target,
    )


# The page's patterns, and the formats of a `SparseWeight`.
_PATTERNS = {"csr": "csr", "coo": "coo", "block": "bsr"}


def sparse_gemm(
    input: Any, weight: Any, sparsity_pattern: str, *, transpose_weight: bool = True, target: str = "cpu"
) -> Any:
    """`input @ weight.T` with a sparse weight; what is not stored is the real value 0.

    The page does not say which way the weight lies; `[N, K]`, as its other weights, is the default.

    Args:
        input: `[.., M, K]` f32, f16 or bf16.
        weight: `[N, K]` of the same dtype, or `[K, N]` with `transpose_weight=False`: a torch sparse tensor, a
            scipy.sparse matrix, or a `qmlir.SparseWeight`, which says itself which way it lies.
        sparsity_pattern: 'csr', 'coo' or 'block' (BSR), the format that the weight has.

    Returns:
        `[.., M, N]` dense, in the input's dtype; f32 sums, rounded once.

    Raises:
        UsageError, VerifyError: a weight that is not sparse or not of this pattern; shapes and dtypes that do not fit.
    """
    input = operand(input, "input")
    wanted = _PATTERNS[one_of(sparsity_pattern, _PATTERNS, "sparsity_pattern")]
    weight = _sparse_weight(weight, bool(transpose_weight))
    if weight.format != wanted:
        raise UsageError(f"sparsity_pattern={sparsity_pattern!r}, but 'weight' is in {weight.format} form")
    dtype = dtype_of(input, "input")
    if dtype not in FLOATS or weight.dtype != dtype:
        raise UsageError(f"'input' is {dtype} and 'weight' {weight.dtype}; they must both be f32, f16 or bf16 "
                         "(qmlir.ops.sparse_matmul takes codes)")  # fmt: skip
    return ops.sparse_matmul(input, weight, out_dtype=dtype, target=target)


def _sparse_weight(weight: Any, transposed: bool) -> SparseWeight:
    if isinstance(weight, SparseWeight):
        return weight
    if type(weight).__module__ == "torch" and str(weight.layout) != "torch.strided":
        return SparseWeight.from_torch(weight, rhs_transposed=transposed)
    if hasattr(weight, "format") and hasattr(weight, "tocsr"):
        return SparseWeight.from_scipy(weight, rhs_transposed=transposed)
    raise UsageError(f"'weight' is a dense {type(weight).__name__}; a torch sparse tensor, a scipy.sparse matrix or a "
                     "qmlir.SparseWeight is needed: SparseWeight.from_dense makes one")  # fmt: skip


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


def int8_gemm(
    input: Any,
    weight: Any,
    input_scale: Any,
    weight_scale: Any,
    output_dtype: Any = "float16",
    *,
    target: str = "cpu",
) -> Any:
    """`(input @ weight.T) * input_scale * weight_scale` of int8 operands.

    The i32 sum is exact; it is converted to f32, multiplied by the f32 product of the two scales, and rounded once.

    Args:
        input: `[M, K]` int8.
        weight: `[N, K]` int8.
        input_scale: one value (`[]` or `[1]`), or one a token, `[M]` or `[M, 1]`. May be negative.
        weight_scale: one value, or one a channel, `[N]` or `[N, 1]`.
        output_dtype: float16, bfloat16 or float32, as a string, a numpy or a torch dtype.

    Returns:
        `[M, N]` in `output_dtype`.

    Raises:
        UsageError, VerifyError: shapes and dtypes that do not fit.
    """
    input = operand(input, "input", 2)
    if dtype_of(input, "input") != "i8":
        raise UsageError(f"'input' must be i8, but is {dtype_of(input, 'input')}")
    codes = integers(weight, "weight", ("i8",))
    if codes.ndim != 2:
        raise UsageError(f"'weight' must be [N, K], but has shape {show(codes.shape)}")
    return ops.scaled_matmul(
        input,
        codes,
        lhs_scale=_scale(input_scale, int(input.shape[0]), "input_scale", "M"),
        rhs_scale=_scale(weight_scale, codes.shape[0], "weight_scale", "N"),
        rhs_transposed=True,
        out_dtype=dtype_name(output_dtype, "output_dtype", FLOATS),
        target=target,
    )


def _scale(value: Any, count: int, name: str, symbol: str) -> Any:
    """A scale of a whole operand as `[]`, one a row as `[rows, 1]`."""
    scale = floats(value, name)
    if scale.size == 1:
        return scale.reshape(())
    if scale.shape not in ((count,), (count, 1)):
        raise UsageError(f"{name!r} must be one value, [{symbol}] or [{symbol}, 1] = [{count}, 1], but has shape "
                         f"{show(scale.shape)}")  # fmt: skip
    return scale.reshape(count, 1)
