"""The model that orders choices of chunks before any is compiled. It knows what chunks change: how evenly threads share
them, how often activations are copied, how often weights are read; and not what they leave alone."""

from __future__ import annotations

from .... import settings
from .gemm import Gemm

# One core, a nanosecond: operations in registers, bytes copied to the stack, bytes of weights from a shared cache.
_OPERATIONS, _COPIED, _READ = 800.0, 30.0, 25.0
_CHUNK_NS = 300.0  # claiming a chunk, its loops, the tile that is not full
_ROWS = 64  # of a kernel whose rows are not known


def nanoseconds_of(gemm: Gemm) -> float:
    """About how long a call takes on this machine's threads; to be compared with other choices of the same kernel."""
    kernel = gemm.kernel
    rows = _ROWS if kernel.m is None else max(kernel.m, 1)
    of_rows = -(-rows // gemm.chunk_rows)
    chunks = of_rows * gemm.column_chunks
    work = 2.0 * rows * kernel.n * kernel.k / _OPERATIONS
    copies = gemm.column_chunks * rows * kernel.k * gemm.lhs_bytes / _COPIED
    reads = of_rows * gemm.panels * gemm.panel_bytes / _READ
    threads = settings.threads()
    # The last round of chunks may leave threads without one.
    rounds = -(-chunks // threads)
    blocks = max(size.blocks for size in gemm.sizes)
    return (work + copies + reads) / chunks * rounds + _CHUNK_NS * rounds * blocks
