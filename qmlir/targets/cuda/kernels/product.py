"""The figures of a tiled product on tensor cores: its instruction, and the memory, registers and time of a tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ....core.mlir import ir
from ....dialect.dtypes import Array
from ....kernels.description import Kernel
from ....kernels.emit import bits
from ....kernels.row_sums import uses_row_sums
from ....kernels.tile.instruction import TiledMma
from ...base import Target
from ...cost import Figures, Work
from ...gpu_kernels.stream_k import Sharing
from ...gpu_kernels.tiled import AS_IT_IS, TiledKernel
from ...gpu_kernels.weights import CHUNK, CodeFormat
from ...strategy import Facts
from . import handed_groups, instructions as gpu
from .halves import halves
from .machine import Nvidia
from .shared_tile import RingShape, copy_size
from .tile import Tile

if TYPE_CHECKING:
    from collections.abc import Hashable

_TYPICAL_ROWS = 512  # assumed for a dynamic M
# Relative to the rate of `wgmma` (Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024).
_MMA_SYNC_ON_HOPPER = 0.63
_OTHER_REGISTERS = 64  # of a lane, in addition to its sums
# Measured on an H100 (`python -m benchmarks.gpu`): clocks from one instruction of a warp to the next, while decoding
# weights or combining groups, and while addressing activations in an image; instructions per code in addition to its
# decoding, per group of a result, per warp in a step, per chunk of 16 codes in an image, and per code that is read
# there alone; and the part of the memory latency that a step takes at least.
_WAIT, _WAIT_IN_IMAGE = 4, 7
_PER_CODE, _PER_GROUP, _PER_STEP, _PER_CHUNK, _PER_LONE_CODE = 3, 11, 120, 36, 12
_LEAST_STEP = 0.3
# A multiprocessor does 16 conversions per clock, but 128 other operations (CUDA programming guide, throughput of
# arithmetic instructions). A rounding is part of the conversion that follows it.
_CONVERSION = 8
_COSTS = {
    "arith.sitofp": _CONVERSION, "arith.uitofp": _CONVERSION, "arith.fptosi": _CONVERSION, "math.roundeven": 0,
    "math.exp": _CONVERSION, "math.erf": 4 * _CONVERSION, "math.tanh": 4 * _CONVERSION, "linalg.yield": 0,
}  # fmt: skip


@dataclass(frozen=True)
class TileFigures(TiledKernel):
    """What a tile needs for a kernel of integers, or of 16-bit floats by codes. The weight is stored in rows.

    Attributes:
        constant: whether the weight is packed, its K padded.
        asynchronous: whether it multiplies by `wgmma`.
    """

    machine: Nvidia
    storage: CodeFormat
    constant: bool
    tile: Tile
    asynchronous: ClassVar[bool] = False

    @property
    def mma(self) -> gpu.Multiply:
        if self.kernel.rhs.decode is not None:
            return gpu.alike(str(self.kernel.lhs.value.type.element_type), 16)
        return gpu.alike("s8", 32 if (self.kernel.group or 32) % 32 == 0 and self.tile.k % 32 == 0 else 16)

    @property
    def unit(self) -> int:
        """Bytes of an element of the activation."""
        return self.mma.step_bytes // self.mma.depth

    @property
    def decodes(self) -> bool:
        """Whether each code is decoded to a float in registers."""
        return self.unit == 2

    @property
    def decoding(self) -> float:
        """Instructions that decode a code to a float; 0 if codes are not decoded."""
        form = halves(self.kernel, self.storage) if self.decodes else None
        return 0 if not self.decodes else 5 if form is None else 2 if form.element == form.result else 4

    @property
    def k_tiles(self) -> int:
        return -(-self.kernel.k // self.tile.k)

    @property
    def padded_k(self) -> int:
        return self.k_tiles * self.tile.k

    @property
    def _tiles_per_step(self) -> int:
        """Tiles of K in one round of the loop: those of a group if groups are combined, else one."""
        return max(1, (self.kernel.group or 0) // self.tile.k) if self.kernel.combine is not None else 1

    @property
    def k_steps(self) -> int:
        return -(-self.k_tiles // self._tiles_per_step)

    @property
    def promotions(self) -> float:
        """Operations of one lane per result and code along K, in addition to the product."""
        return 0.0

    @property
    def shared_reads(self) -> float:
        """Bytes that warps read from shared memory for one code along K."""
        (rows, columns), warps = self.tile.warp, self.tile.warps[0] * self.tile.warps[1]
        return warps * (rows * self.unit + columns / self.storage.fields)

    @property
    def shapes(self) -> tuple[RingShape, RingShape]:
        """The shapes of both sides' rings in shared memory."""
        t = self.tile
        # Only rows that exist, if there are few: lanes of other rows read the last one, and store no results.
        rows = t.m if self.asynchronous else min(t.m, self.kernel.m or t.m)
        return RingShape(rows, t.k * self.unit, t.stages), RingShape(t.n, t.k // self.storage.fields, t.stages)

    @property
    def shared_bytes(self) -> int:
        # All warps along K except the first hand over their sums, and row sums: a fragment of 8 columns per warp.
        sums = 8 * self.tile.warps[1] * int(uses_row_sums(self.kernel))
        handed = 4 * self.tile.m * (self.tile.n + sums) * (self.tile.warps[2] - 1)
        if self.hands_over:
            handed = handed_groups.shared_bytes(self.kernel, self.tile, uses_row_sums(self.kernel))
        return sum(shape.bytes for shape in self.shapes) + handed + (4 if self.tile.stream_k else 0)  # its flag

    @property
    def tiled(self) -> TiledMma:
        """The fragments side by side, and how many of them neighbouring columns are assigned to in turn."""
        fragments = self.tile.warp[1] // 8
        return TiledMma(
            self.mma.fragments, "b", self.mma.depth, interleave=next(f for f in (4, 2, 1) if fragments % f == 0)
        )

    @property
    def hands_over(self) -> bool:
        """Whether warps along K compute different groups: see handed_groups.py."""
        return handed_groups.hands_over(self.kernel, self.tile)

    @property
    def lanes(self) -> int:
        """Neighbouring columns that a lane stores at once."""
        if self.hands_over:
            return handed_groups.lanes(self.tile)
        return next(w for w in (8, 4, 2, 1) if w <= len(self.tiled.held) and self.kernel.n % w == 0)


@dataclass(frozen=True)
class TiledProduct(TileFigures):
    """A kernel on one tile."""

    workgroups: int = 0  # number that share K of all tiles (`stream_k`); 0: one workgroup per tile

    @property
    def name(self) -> str:
        return self.tile.name

    @property
    def packing(self) -> Hashable:
        return self.storage if self.constant else AS_IT_IS

    def weight(self, codes: Array | None, padded_k: int) -> ir.Value:
        return self.storage.packed_rows(self.kernel, codes, padded_k)

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def shape(self) -> tuple[int, int]:
        return self.tile.m, self.tile.n

    @property
    def facts(self) -> Facts:
        tile = self.tile
        return {
            "mma": f"mma.sync.m16n8k{self.mma.depth}.{self.mma.operand}",
            "tile": [tile.m, tile.n, tile.k],
            "warps": list(tile.warps),
            "stages": tile.stages,
            "weight_bits": self.storage.bits,
        }

    @property
    def sharing(self) -> Sharing | None:
        """How workgroups share K, if they do. Only the first warps along K hold sums."""
        if not self.workgroups:
            return None
        sums = self.tile.warp[0] // 16 if uses_row_sums(self.kernel) and self.kernel.combine is None else 0
        holders = self.tile.threads // self.tile.warps[2]
        return Sharing(self.workgroups, self.k_steps, holders, self.tile.accumulators + 4 * sums, self.machine)

    @property
    def sharable(self) -> bool:
        """Whether workgroups can share K of the tile."""
        kernel, group = self.kernel, self.kernel.group
        # `Block.groups` multiplies an incomplete last tile behind its loop, even if a share of K ends before it.
        whole = kernel.combine is None or group is None or group >= self.tile.k or kernel.k % self.tile.k == 0
        return kernel.batch is None and whole

    @property
    def resident(self) -> int:
        """Workgroups of a multiprocessor at the same time: two if they fit, else one."""
        registers = (self.tile.accumulators + _OTHER_REGISTERS) * self.tile.threads
        fit = 2 * self.shared_bytes <= self.machine.shared_memory and 2 * registers <= self.machine.registers
        return 2 if fit else 1

    def shared_among(self, target: Target) -> TiledProduct:
        """The kernel with as many workgroups as run at the same time."""
        return replace(self, workgroups=Figures(target.capabilities).units * self.resident)

    def work(self, target: Target, f: Figures) -> Work:
        kernel, tile, fields = self.kernel, self.tile, self.storage.fields
        m = f.rows(kernel.m, _TYPICAL_ROWS)
        # A dynamic number of blocks is taken as one per matrix.
        products = 1 if kernel.batch is None else kernel.batch.size or kernel.batch.matrices
        tiles = -(-m // tile.m) * -(-kernel.n // tile.n) * products
        each = -(-tiles // f.units)
        together = max(1, min(each, target.capabilities.shared_memory // self.shared_bytes, f.threads // tile.threads))
        if self.workgroups:
            together = self.workgroups // f.units
        reached = _MMA_SYNC_ON_HOPPER if "wgmma" in target.capabilities.features and not self.asynchronous else 1.0
        # The times below are per code along K.
        multiply = f.multiply(2 * tile.m * tile.n / reached, self.mma.rate)
        promote = f.operations(tile.m * tile.n * self.promotions) / 2  # half of it is hidden by products
        alone = {"promote": promote} if promote else {}
        warps = together * tile.threads // 32
        decode = tile.warps[0] * tile.n * (self.decoding + _PER_CODE) if self.decodes else 0.0
        combine = 0.0 if kernel.combine is None else tile.m * tile.n * _PER_GROUP / (kernel.group or tile.k)
        issued = (decode + combine + (0 if self.asynchronous else _PER_STEP * tile.threads / tile.k)) / 32
        busy = {
            "multiply": multiply,
            "shared memory": f.shared(self.shared_reads),
            "cache": f.cache(min(m, tile.m) * self.unit + tile.n / fields),
            "decode": f.issued(issued, warps, _WAIT),
            "image": f.issued(tile.m * self._in_image / 32, warps, _WAIT_IN_IMAGE),
            # A workgroup waits if fewer bytes are in flight than the latency of memory requires.
            "latency": f.latency / ((tile.stages - 1) * tile.k) / together,
            "step": _LEAST_STEP * f.latency / tile.k / together,
        }
        finish = f.operations(tile.m * tile.n * self._finishing)
        memory = moved(kernel, m, self.padded_k, fields)
        if (sharing := self.sharing) is None:
            return Work(each, self.padded_k, busy, alone, fixed=f.latency / together + finish, memory=memory)
        steps = -(-tiles * self.k_steps // self.workgroups) * together  # per multiprocessor
        depth = steps * self.padded_k / self.k_steps
        once = sharing.seconds(together, f) + finish * tiles / f.units
        return Work(1, depth, busy, alone, once=once, memory=memory)

    @property
    def _in_image(self) -> float:
        """Instructions per code of a row that is read from an image."""
        window = self.kernel.lhs.window
        if window is None:
            return 0.0
        return _PER_CHUNK / CHUNK if copy_size(window.channels * self.unit) else _PER_LONE_CODE

    @property
    def _finishing(self) -> float:
        """Operations of a lane per result: those of the bodies, and a store."""
        bodies = [op for stage in self.kernel.stages for op in stage.body.operations]
        return 1 + sum(_COSTS.get(op.operation.name, 1) for op in bodies)


def moved(kernel: Kernel, m: int, padded_k: int, fields: int) -> float:
    """Bytes of a weight with `fields` codes per byte, and of `m` rows of the activation and of the result."""
    unit = 1 if kernel.rhs.decode is None else 2
    return kernel.n * padded_k / fields + m * kernel.k * unit + m * kernel.columns * bits(kernel.result_type) / 8
