"""The products of AITER's GEMM page: fused float products, int8 products, and the experts of a mixture.

    python samples/06_aiter/run.py
    python samples/06_aiter/run.py --target vulkan:lavapipe

Operands are f16 as on the page, with a quarter of its sizes. Prints a table; exits with 1 when a result exceeds the
bound of docs/semantics.md, or an exact one differs.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from report import Report, target_option, terms

from qmlir import ops, reference

M, N, K = 256, 512, 128
TOKENS, EXPERTS, TOPK = 64, 8, 2
_erf = np.vectorize(math.erf)


def main() -> int:
    """The sample; returns the exit code."""
    target = target_option(__doc__)
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float16)

    def wide(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64)

    x, w, bias, c = floats(M, K), floats(N, K), floats(N), floats(M, N)
    report = Report("AITER, the GEMM page", target)
    operands = f"f16[{M}, {K}] x f16[{N}, {K}]"
    product, size = wide(x) @ wide(w).T, terms(x, w)
    y = product + wide(bias)
    keywords = {"rhs_transposed": True, "out_dtype": "f16", "target": target}
    report.close("gemm_bias", operands, lambda: ops.scaled_matmul(x, w, bias=bias, **keywords), y, size + np.abs(bias))
    report.close(
        "gemm_gelu",
        operands,
        lambda: ops.scaled_matmul(x, w, bias=bias, activation="gelu", **keywords),
        0.5 * y * (1 + _erf(y / math.sqrt(2))),
        2 * size + np.abs(bias) + 8,  # a device's f32 erf has an error of a few units in the last place
    )
    report.close(
        "cutlass_gemm",
        operands,
        lambda: ops.scaled_matmul(x, w, alpha=0.5, beta=2.0, c=c, **keywords),
        0.5 * product + 2 * wide(c),
        0.5 * size + 4 * np.abs(c),
    )
    codes, weight = rng.integers(-127, 127, (M, K), np.int8), rng.integers(-127, 127, (N, K), np.int8)
    scales = rng.standard_normal(2).astype(np.float32)
    report.exact(
        "int8_gemm",
        f"i8[{M}, {K}] x i8[{N}, {K}]",
        lambda: ops.scaled_matmul(codes, weight, lhs_scale=scales[0], rhs_scale=scales[1], **keywords),
        reference.scaled_matmul(
            codes, weight, rhs_transposed=True, lhs_scale=scales[0], rhs_scale=scales[1], out_dtype="f16"
        ),
    )
    experts, ids = floats(EXPERTS, K, N), rng.integers(0, EXPERTS, (TOKENS, TOPK))
    tokens = x[:TOKENS]
    report.close(
        "grouped_gemm",
        f"f16[{TOKENS}, {K}] x f16[{EXPERTS}, {K}, {N}], top {TOPK}",
        lambda: ops.grouped_matmul(
            tokens,
            experts,
            expert_ids=ids,
            routing_weights=np.ones(ids.shape, np.float32),
            out_dtype="f16",
            target=target,
        ),
        sum(np.einsum("tk,tkn->tn", wide(tokens), wide(experts)[ids[:, j]]) for j in range(TOPK)),
        K * sum(np.einsum("tk,tkn->tn", np.abs(wide(tokens)), np.abs(wide(experts)[ids[:, j]])) for j in range(TOPK)),
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
