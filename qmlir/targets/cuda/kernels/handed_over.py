"""Sums of warps that share K, through shared memory."""

from __future__ import annotations

from collections.abc import Callable

from ....core.mlir import ir, memref
from ...gpu_kernels import emit as e
from . import instructions as gpu


def handed_over(
    totals: list[ir.Value], warp: e.Index, others: int, thread: ir.Value, threads: int,
    add: Callable[[ir.Value, ir.Value], ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """Sums over warps 0 to `others` along K, in warp 0; of each there are so many `threads`, with other sums."""
    if not others:
        return totals
    memory = gpu.shared([others, len(totals), threads], totals[0].type)
    lane = e.remainder(thread, threads)

    def at(other: e.Index, i: int) -> list[ir.Value]:
        return [e.index(other), e.index(i), e.index(lane)]

    def give() -> None:
        for i, value in enumerate(totals):
            memref.store(value, memory, at(e.subtract(warp, 1), i))

    e.guarded(e.less(0, warp), give)
    gpu.barrier()
    for other in range(others):
        totals = [add(value, memref.load(memory, at(other, i))) for i, value in enumerate(totals)]
    return totals
