"""The tiles that kernels are shipped in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A workgroup's share of the result, and how its warps divide it; sizes in elements.

    Attributes:
        m, n: of the result.
        k: codes along K of one stage.
        warps: along M and N.
        stages: tiles of K in shared memory, all but one of them under way.
    """

    m: int
    n: int
    k: int
    warps: tuple[int, int]
    stages: int

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

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
    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"
