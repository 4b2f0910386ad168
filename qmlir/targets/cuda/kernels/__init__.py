"""Kernels for NVIDIA GPUs, written as IR through the bindings.

instructions.py  cp.async, ldmatrix, mma.sync, ... as functions
machine.py       what the common kernels ask of NVIDIA GPUs; scalar ops of bodies that these have a better form for
tile.py          the tiles that are shipped
shared_tile.py   a ring of tiles in shared memory: copies, swizzle, fragments
product.py       a product in tiles: its weight, and what it keeps busy
mma_loop.py      products on tensor cores: the schedule of the common loop, fragments, groups along K
mma_gemm.py      the same as programs of tiles
wgmma_gemm.py    the same on Hopper's wgmma
decode.py        weights of codes as floats
fp8.py           one-byte floats on both sides
scaled_instructions.py, scaled_gemm.py  small floats with scales of blocks: the table of their instructions, the kernel
wgmma_fp8.py     the same on Hopper's wgmma
gemv.py          products of a few rows: lanes share K
choose.py        the tiles that a product may have
strategy.py      when a kernel takes a contraction; every refusal is there
float_strategy.py  the same of floats
"""

from __future__ import annotations

from collections.abc import Iterator

from ...backends import backend_of
from ...base import Target
from ...strategy import choice_text
from .strategy import CudaProductStrategy


def configurations(target: Target) -> Iterator[tuple[str, str]]:
    """Every strategy and choice of its tile that is shipped for a target: `qmlir-select{prefer=STRATEGY choice=CHOICE}`
    asks for one, which a product takes that it fits: shared memory, and groups along K, may not allow it."""

    for strategy in backend_of(target).strategies(target):
        if isinstance(strategy, CudaProductStrategy) and not strategy.name.endswith("-conv"):
            choices = [choice_text({k.name: v}) for k in strategy.space() for v in k.values if v]
            yield from ((strategy.name, choice) for choice in choices or [""])
