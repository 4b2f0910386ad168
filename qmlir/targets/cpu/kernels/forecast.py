"""A cost model that ranks chunk sizes before any is compiled. It covers only costs that depend on them: how evenly
threads share the chunks, how often activations are copied, how often weights are read."""

from __future__ import annotations

from .... import settings
from ...capabilities import Capabilities
from ...cost import Cost, Figures, Work
from ..host import TILE_LOOPS
from .depthwise import Depthwise
from .gemm import Gemm

_CHUNK = 300e-9  # seconds per chunk: claiming it, its loops, its partial tile
_ROWS = 64  # assumed if the number of rows is dynamic
# Operations of micro-kernels per clock, relative to `vpdpbusd` on 512 bits. They follow from the vectors' width, the
# instructions for four products (two `vpmaddwd` and two additions on AVX2), and the products of an instruction (Intel's
# instruction tables).
OPERATIONS = {
    "avx512-vnni": 1.0, "avx-vnni": 1 / 2, "avx2-int8": 1 / 8, "amx-int8": 4.5,
    "avx512-bf16": 1 / 2, "avx512-fma": 1 / 4, "avx2-fma": 1 / 8, "amx-bf16": 2.25, "amx-fp16": 2.25,
    "smmla": 1 / 2, "sdot": 1 / 4, "neon-fma": 1 / 16,
    "amx-bf16-plain": 2.25, "avx512-bf16-plain": 1 / 2, "avx512-f32": 1 / 4, "avx2-f32": 1 / 8, "neon-f32": 1 / 16,
}  # fmt: skip
# AMX's peak is 8 and 4, but its tiles wait for the second-level cache: 107 cycles for the products of 64 cycles
# (Sapphire Rapids). With fewer rows than this they wait only for the weights.
_ROWS_OF_TILES = 12
_TILES_READY = 1e-6  # seconds per call: asking for permission, configuring and releasing tiles
_LINES = 1e-6  # seconds per call: a kernel that copies activations into lines


def cost_of_depthwise(made: Depthwise, has: Capabilities) -> Cost:
    """As `cost_of`, of a depthwise convolution, whose vectors hold a tap of each channel: an eighth of the products."""
    kernel, f, chunks = made.kernel, Figures(has), (made.window.image[0] or 1) * made.row_chunks
    multiply = f.core(8.0 * f.rows(kernel.m, _ROWS) * kernel.n * kernel.k) / chunks
    return f.cost(Work(-(-chunks // settings.threads()), 1, alone={"multiply": multiply}, fixed=_CHUNK))


def cost_of(gemm: Gemm, has: Capabilities) -> Cost:
    """The approximate time of a call on this machine's threads, to compare choices for the same kernel."""
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
    # In the last round of chunks some threads may be idle.
    rounds = -(-chunks // settings.threads())
    once = _TILES_READY * tiles + _LINES * gemm.copies
    return f.cost(Work(rounds, 1, alone=of_a_chunk, fixed=_CHUNK * max(size.blocks for size in gemm.sizes), once=once))
