"""Kernels for NVIDIA GPUs, written as IR through the bindings.

instructions.py  cp.async, ldmatrix, mma.sync, ... as functions
machine.py       the `Machine` of NVIDIA GPUs, and rules for scalar ops that have a better form there
tile.py          the tiles that are shipped
shared_tile.py   a ring of tiles in shared memory: copies, swizzle, fragments
product.py       a tiled product: its weight, shared memory and cost
mma_loop.py      products on tensor cores: the schedule of the common loop, fragments, groups along K
mma_gemm.py      products on `mma.sync` as tile programs
handed_groups.py groups along K that are distributed over warps
wgmma_gemm.py    products on Hopper's wgmma
decode.py        weights of codes, dequantised to floats in registers
halves.py        integer codes to 16-bit floats, two at a time
fp8.py           one-byte floats on both sides
wgmma_fp8.py     the same on Hopper's wgmma
scaled_instructions.py, scaled_gemm.py  small floats with block scales: the table of their instructions, the kernel
gemv.py          products of a few rows: lanes share K
choose.py        the tiles that a product may have
strategy.py      when an integer kernel takes a contraction; every refusal is there
float_strategy.py  the same for float kernels
"""

from __future__ import annotations

from collections.abc import Iterator

from ...backends import backend_of
from ...base import Target
from ...strategy import choice_text
from .strategy import CudaProductStrategy


def configurations(target: Target) -> Iterator[tuple[str, str]]:
    """Yield every strategy of a target with every choice of its tile. `qmlir-select{prefer=STRATEGY choice=CHOICE}`
    requests one; a product takes it only if shared memory and its groups along K allow that."""

    for strategy in backend_of(target).strategies(target):
        if isinstance(strategy, CudaProductStrategy) and not strategy.name.endswith("-conv"):
            choices = [choice_text({k.name: v}) for k in strategy.space() for v in k.values if v]
            yield from ((strategy.name, choice) for choice in choices or [""])
