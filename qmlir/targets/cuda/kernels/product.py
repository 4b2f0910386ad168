"""A product in tiles on tensor cores, in figures: what it multiplies by, and what a tile takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....kernels.description import Kernel
from ....kernels.row_sums import uses_row_sums
from ....kernels.tile.instruction import TiledMma
from . import instructions as gpu
from .halves import halves
from .shared_tile import RingShape
from .tile import Tile
from .weights import Storage


@dataclass(frozen=True)
class TiledProduct:
    """A kernel on one tile: of integers, or of 16-bit floats by a weight of codes."""

    kernel: Kernel
    tile: Tile
    storage: Storage
    constant: bool  # the weight is packed, its K padded
    workgroups: int = 0  # that share K of all tiles (`stream_k`); 0: each has a tile of its own
    because: str = field(default="", compare=False)  # why they do or do not

    @property
    def mma(self) -> gpu.Multiply:
        if self.kernel.rhs.decode is not None:
            return gpu.Mma(16, str(self.kernel.lhs.value.type.element_type), "f32")
        return gpu.Mma(32 if (self.kernel.group or 32) % 32 == 0 and self.tile.k % 32 == 0 else 16, "s8", "i32")

    @property
    def unit(self) -> int:
        """Bytes of an element of the activation."""
        return 1 if self.kernel.rhs.decode is None else 2

    @property
    def rate(self) -> str:
        """The type at whose rate the instruction multiplies."""
        return "i8" if self.unit == 1 else "f16"

    @property
    def asynchronous(self) -> bool:
        """Whether it multiplies by `wgmma`."""
        return False

    @property
    def decodes(self) -> bool:
        """Whether each code is made a float in registers."""
        return self.unit == 2

    @property
    def decoding(self) -> float:
        """Instructions that make a float of a code."""
        form = halves(self.kernel, self.storage) if self.decodes else None
        return 0 if not self.decodes else 5 if form is None else 2 if form.element == form.result else 4

    @property
    def step(self) -> int:
        """Codes along K of one instruction."""
        return self.mma.depth

    @property
    def k_tiles(self) -> int:
        return -(-self.kernel.k // self.tile.k)

    @property
    def padded_k(self) -> int:
        return self.k_tiles * self.tile.k

    @property
    def _tiles_per_step(self) -> int:
        """Tiles of K that are multiplied as one: those of a group whose sum is combined, else one."""
        return max(1, (self.kernel.group or 0) // self.tile.k) if self.kernel.combine is not None else 1

    @property
    def k_steps(self) -> int:
        return -(-self.k_tiles // self._tiles_per_step)

    @property
    def promotions(self) -> float:
        """Operations of one lane that a code along K takes of a result, beside the product."""
        return 0.0

    @property
    def shared_reads(self) -> float:
        """Bytes that warps read from shared memory for one code along K."""
        (rows, columns), warps = self.tile.warp, self.tile.warps[0] * self.tile.warps[1]
        return warps * (rows * self.unit + columns / self.storage.fields)

    @property
    def shapes(self) -> tuple[RingShape, RingShape]:
        """Of the rings in shared memory."""
        t = self.tile
        return RingShape(t.m, t.k * self.unit, t.stages), RingShape(t.n, t.k // self.storage.fields, t.stages)

    @property
    def shared_bytes(self) -> int:
        # Warps along K but the first hand over their sums, row sums among them: a fragment of 8 columns a warp.
        sums = 8 * self.tile.warps[1] * int(uses_row_sums(self.kernel))
        handed = 4 * self.tile.m * (self.tile.n + sums) * (self.tile.warps[2] - 1)
        return sum(shape.bytes for shape in self.shapes) + handed + (4 if self.tile.stream_k else 0)  # its flag

    @property
    def tiled(self) -> TiledMma:
        """Fragments side by side: of so many, neighbouring columns are dealt to each."""
        fragments = self.tile.warp[1] // 8
        return TiledMma(self.mma.fragments, "b", self.mma.depth, dealt=next(f for f in (4, 2, 1) if fragments % f == 0))
