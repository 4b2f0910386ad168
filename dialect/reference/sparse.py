"""sparse_matmul: the dense product with the densified weight (docs/semantics.md, section 4)."""

from __future__ import annotations

from typing import Any, Protocol

from ..dtypes import Array
from ..sparse_formats import densified_dtype
from .matmul import scaled_matmul


class SparseWeightLike(Protocol):
    """The interface of a sparse weight; `qmlir.SparseWeight` implements it."""

    @property
    def dtype(self) -> str: ...
    @property
    def rhs_transposed(self) -> bool: ...
    def to_dense(self) -> Array: ...


def sparse_matmul(lhs: Array, weight: SparseWeightLike, **kw: Any) -> Array:
    """`epilogue(sum_k A[m,k] * B[k,n])`, A `[B.., M, K]`, B sparse, `[K, N]` or `[N, K]` as the weight says.

    An absent entry is the real value 0, so the weight has no zero point. Keywords are those of `scaled_matmul` except
    `rhs_dtype` and `rhs_transposed`, which the weight states.
    """
    if kw.get("rhs_zero_point") is not None or kw.get("rhs_zero_mode", "none") != "none":
        raise ValueError("a sparse weight has no zero point: absent entries are the real value 0")
    return scaled_matmul(lhs, weight.to_dense(), rhs_dtype=densified_dtype(weight.dtype),
                         rhs_transposed=weight.rhs_transposed, **kw)  # fmt: skip
