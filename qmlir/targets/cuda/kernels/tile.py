"""The tiles of the shipped kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A workgroup's share of the result, and how its warps divide it; sizes in elements.

    Attributes:
        m, n: rows and columns of the result.
        k: codes along K of one stage.
        warps: along M, N and K. Those along K take different steps of each tile and add up their sums at the end, or
            they compute different groups: see handed_groups.py.
        stages: tiles of K in shared memory, all but one of them in flight.
        stream_k: whether workgroups share K: see stream_k.py.
    """

    m: int
    n: int
    k: int
    warps: tuple[int, int, int]
    stages: int
    stream_k: bool = False

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1] * self.warps[2]

    @property
    def warp(self) -> tuple[int, int]:
        """Rows and columns of one warp."""
        return self.m // self.warps[0], self.n // self.warps[1]

    @property
    def accumulators(self) -> int:
        """Registers of a lane that hold its part of the result."""
        rows, columns = self.warp
        return rows * columns // 32

    @property
    def is_small(self) -> bool:
        """Whether sums leave most registers of a lane free: for operands that are read long before their use, and for
        the addresses of a long tile."""
        return self.accumulators <= 32

    @property
    def name(self) -> str:
        return "x".join(map(str, (self.m, self.n, self.k, *self.warps, self.stages))) + "-stream-k" * self.stream_k


# Tiles for `mma.sync`, largest first. For a warp's part of 64 x 64, reading shared memory takes half the time that an
# A100's tensor cores take to multiply; narrow tiles are for few rows.
TILES = (
    Tile(128, 256, 64, (2, 4, 1), 4),
    Tile(256, 128, 64, (4, 2, 1), 4),
    Tile(128, 128, 64, (2, 2, 1), 4),
    Tile(128, 128, 128, (2, 4, 1), 3),
    Tile(128, 128, 64, (4, 4, 1), 4),
    Tile(128, 64, 64, (4, 2, 1), 4),
    Tile(128, 64, 128, (2, 2, 1), 3),
    Tile(64, 128, 128, (2, 2, 1), 3),
    Tile(64, 64, 128, (2, 2, 1), 4),
    Tile(64, 64, 128, (2, 4, 1), 4),
    Tile(32, 128, 128, (1, 4, 1), 4),
    Tile(32, 64, 128, (1, 4, 1), 4),
    Tile(16, 128, 128, (1, 4, 1), 4),
    Tile(16, 64, 128, (1, 4, 1), 4),
    # For few results with a long K: warps share K.
    Tile(64, 64, 256, (2, 2, 2), 3),
    Tile(32, 32, 256, (1, 1, 4), 4),
    Tile(16, 32, 512, (1, 1, 4), 3),
    Tile(16, 16, 512, (1, 1, 4), 4),
    Tile(16, 32, 1024, (1, 1, 8), 3),
    # For results of few, large tiles: workgroups share K.
    Tile(128, 128, 128, (2, 4, 1), 3, stream_k=True),
    Tile(64, 128, 128, (2, 2, 1), 3, stream_k=True),
    Tile(64, 64, 128, (2, 2, 1), 4, stream_k=True),
    Tile(32, 128, 128, (1, 4, 1), 4, stream_k=True),
    Tile(32, 64, 128, (1, 4, 1), 4, stream_k=True),
    Tile(16, 128, 128, (1, 4, 1), 4, stream_k=True),
    Tile(16, 64, 128, (1, 4, 1), 4, stream_k=True),
)
# Tiles for 16-bit floats by codes, which every warp that multiplies them decodes in registers.
FLOAT_TILES = (
    Tile(128, 128, 64, (2, 4, 1), 4),
    Tile(128, 64, 64, (2, 2, 1), 4),
    Tile(64, 128, 64, (2, 2, 1), 4),
    Tile(64, 64, 64, (2, 2, 1), 4),
    Tile(32, 64, 128, (1, 2, 2), 4),
    Tile(16, 64, 128, (1, 2, 2), 4),
    Tile(16, 32, 512, (1, 1, 4), 3),
    Tile(16, 32, 256, (1, 1, 4), 4),
    Tile(16, 32, 128, (1, 1, 4), 4),
    Tile(16, 32, 512, (1, 1, 8), 3),
    Tile(16, 16, 256, (1, 1, 4), 4),
    Tile(16, 16, 512, (1, 1, 8), 3),
    Tile(128, 64, 64, (2, 2, 1), 4, stream_k=True),
    Tile(64, 64, 64, (2, 2, 1), 4, stream_k=True),
    Tile(32, 64, 128, (1, 2, 2), 4, stream_k=True),
    Tile(16, 64, 128, (1, 2, 2), 4, stream_k=True),
)

# Tiles for `wgmma`: rows of 128 bytes, 16 rows per warp, a multiple of four warps along M.
WGMMA_TILES = (
    Tile(128, 256, 128, (8, 1, 1), 4),
    Tile(256, 128, 128, (16, 1, 1), 4),
    Tile(128, 128, 128, (8, 1, 1), 6),
    Tile(64, 256, 128, (4, 1, 1), 5),
    Tile(64, 128, 128, (4, 1, 1), 6),
    Tile(64, 64, 128, (4, 1, 1), 8),
    Tile(128, 128, 128, (8, 1, 1), 3),
    Tile(128, 64, 128, (8, 1, 1), 3),
    Tile(64, 128, 128, (4, 1, 1), 4),
    Tile(64, 64, 128, (4, 1, 1), 4),
    Tile(128, 128, 128, (8, 1, 1), 6, stream_k=True),
    Tile(64, 128, 128, (4, 1, 1), 6, stream_k=True),
    Tile(64, 64, 128, (4, 1, 1), 8, stream_k=True),
)
# Tiles for one-byte floats on `wgmma`. Their sums, of two tiles of K at a time, are separate from the totals: with more
# columns they would not fit 255 registers.
WGMMA_FP8_TILES = (
    Tile(128, 128, 128, (8, 1, 1), 6),
    Tile(64, 128, 128, (4, 1, 1), 6),
    Tile(64, 64, 128, (4, 1, 1), 8),
    Tile(128, 128, 128, (8, 1, 1), 6, stream_k=True),
    Tile(64, 128, 128, (4, 1, 1), 6, stream_k=True),
    Tile(64, 64, 128, (4, 1, 1), 8, stream_k=True),
)
