"""What orders choices of chunks before any is compiled. It knows what chunks change: how evenly threads share them, how
often activations are copied, how often weights are read; and not what they leave alone."""

from __future__ import annotations

from .... import settings
from ...capabilities import Capabilities
from ...cost import Cost, Figures, Work
from ..host import TILE_LOOPS
from .depthwise import Depthwise
from .gemm import Gemm

_CHUNK = 300e-9  # seconds: claiming a chunk, its loops, the tile that is not full
_ROWS = 64  # of a kernel whose rows are not known
# Operations of micro-kernels in a clock, for each of `vpdpbusd` on 512 bits: width of the vectors, instructions for
# four products (two `vpmaddwd` and two additions on AVX2), products of an instruction (Intel's instruction tables).
OPERATIONS = {
    "avx512-vnni": 1.0, "avx-vnni": 1 / 2, "avx2-int8": 1 / 8, "amx-int8": 4.5,
    "avx512-bf16": 1 / 2, "avx512-fma": 1 / 4, "avx2-fma": 1 / 8, "amx-bf16": 2.25, "amx-fp16": 2.25,
    "smmla": 1 / 2, "sdot": 1 / 4, "neon-fma": 1 / 16,
    "amx-bf16-plain": 2.25, "avx512-bf16-plain": 1 / 2, "avx512-f32": 1 / 4, "avx2-f32": 1 / 8, "neon-f32": 1 / 16,
}  # fmt: skip
# AMX's tiles do 8 and 4, and wait for the second-level cache: 107 cycles for the products of 64 (Sapphire Rapids). With
# fewer rows than these they wait for the weights alone.
_ROWS_OF_TILES = 12
_TILES_READY = 1e-6  # seconds of a call: the system's permission, tiles made ready and given up
_LINES = 1e-6  # seconds of a call: a kernel that brings activations into lines


def cost_of_depthwise(made: Depthwise, has: Capabilities) -> Cost:
    """The same of a depthwise convolution, whose vectors hold a tap of each channel: an eighth of the products."""
    kernel, f, chunks = made.kernel, Figures(has), (made.window.image[0] or 1) * made.row_chunks
    multiply = f.core(8.0 * f.rows(kernel.m, _ROWS) * kernel.n * kernel.k) / chunks
    return f.cost(Work(-(-chunks // settings.threads()), 1, alone={"multiply": multiply}, fixed=_CHUNK))


def cost_of(gemm: Gemm, has: Capabilities) -> Cost:
    """About how long a call takes on this machine's threads; to be compared with other choices of the same kernel."""
    kernel, f = gemm.kernel, Figures(has)
    rows = max(f.rows(kernel.m, _ROWS), 1)
    of_rows = -(-rows // gemm.chunk_rows)
    chunks = of_rows * gemm.column_chunks
    copies = int(gemm.copies) if gemm.in_place else gemm.column_chunks
    tiles = gemm.micro.name in TILE_LOOPS
    multiplied = max(rows, _ROWS_OF_TILES) if tiles else rows
    of_a_chunk = {
        "multiply": f.core(2.0 * multiplied * kernel.n * kernel.k / OPERATIONS[gemm.micro.name]) / chunks,
        "copies of activations": f.copied(copies * rows * kernel.k * gemm.lhs_bytes) / chunks,
        "reads of weights": f.read(of_rows * gemm.panels * gemm.panel_bytes) / chunks,
    }
    # The last round of chunks may leave threads without one.
    rounds = -(-chunks // settings.threads())
    once = _TILES_READY * tiles + _LINES * gemm.copies
    return f.cost(Work(rounds, 1, alone=of_a_chunk, fixed=_CHUNK * max(size.blocks for size in gemm.sizes), once=once))
