"""An int8 x int8 product with per-row and per-column scales in Triton: grouped blocks, pipelined, autotuned."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in (
        (128, 256, 128, 3, 8), (128, 256, 64, 4, 8), (256, 128, 128, 3, 8), (128, 128, 128, 4, 8),
        (128, 128, 128, 4, 4), (128, 64, 128, 4, 4), (64, 128, 128, 4, 4), (64, 64, 128, 5, 4), (32, 64, 256, 4, 4),
        (16, 64, 256, 5, 4), (16, 128, 256, 4, 4), (16, 32, 512, 4, 4),
    )
]  # fmt: skip


@triton.autotune(configs=_CONFIGS, key=["M", "N", "K"])
@triton.jit
def _kernel(x, w, out, sx, sw, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    pid = tl.program_id(0)
    blocks_m, blocks_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * blocks_n)
    first = group * GROUP
    rows = min(blocks_m - first, GROUP)
    m = first + (pid % (GROUP * blocks_n)) % rows
    n = (pid % (GROUP * blocks_n)) // rows
    at_m, at_n = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    xp = x + (at_m % M)[:, None] * K + at_k[None, :]
    wp = w + (at_n % N)[None, :] * K + at_k[:, None]
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(tl.cdiv(K, BK)):
        inside = at_k < K - k * BK
        a = tl.load(xp, mask=inside[None, :], other=0)
        b = tl.load(wp, mask=inside[:, None], other=0)
        acc = tl.dot(a, b, acc)
        xp += BK
        wp += BK
    row_scale = tl.load(sx + at_m, mask=at_m < M, other=0.0)
    column_scale = tl.load(sw + at_n, mask=at_n < N, other=0.0)
    y = acc.to(tl.float32) * (row_scale[:, None] * column_scale[None, :])
    where = out + at_m[:, None] * N + at_n[None, :]
    tl.store(where, y.to(tl.float16), mask=(at_m < M)[:, None] & (at_n < N)[None, :])


def multiply(x: Any, w: Any, sx: Any, sw: Any) -> Any:
    """The f16 product [M, N] of int8 x [M, K] and w [N, K], with scales [M] and [N]."""
    m, k = x.shape
    n = w.shape[0]
    out = torch.empty((m, n), device=x.device, dtype=torch.float16)
    _kernel[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](x, w, out, sx, sw, m, n, k)
    return out
