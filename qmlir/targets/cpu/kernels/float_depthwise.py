"""f32 depthwise convolutions by multiply-adds: a lane is a channel."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import ir, llvm
from ....ir.build import collapse
from ....kernels.at_load import at_load, decided_at_load
from ....kernels.description import Kernel
from ....kernels.layouts import WeightLayout
from . import emit as e
from .depthwise import ChannelRows, Depthwise
from .float_micro import AVX2_FMA, AVX512_FMA


@dataclass(frozen=True)
class FloatVectors:
    """Vectors of f32."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int
    elements = "f32", "f32"

    @property
    def channels(self) -> int:
        """The number of channels of a block."""
        return self.lanes

    def known(self, kernel: Kernel) -> bool:
        return decided_at_load(kernel.rhs.value)

    def weight(self, kernel: Kernel) -> ir.Value:
        """Emit the filter `[K, C]`, with the channels padded to whole blocks."""
        blocks = -(-kernel.n // self.lanes)
        layout = WeightLayout((kernel.k, blocks * self.lanes), ((kernel.k,), (blocks, self.lanes)), (0, 1, 2))
        made: ir.Value = at_load(kernel.rhs.value, lambda copy: layout.emit(collapse(copy, [[0, 1], [2]])))
        return made

    def rows(self, plan: Depthwise, buffers: list[e.Buffer]) -> ChannelRows:
        return FloatRows(plan, buffers, self)


class FloatRows(ChannelRows):
    """Emits a chunk of an f32 convolution."""

    parts = 1
    together = 4

    def __init__(self, plan: Depthwise, buffers: list[e.Buffer], vectors: FloatVectors) -> None:
        super().__init__(plan, buffers)
        self.lanes, self.element = vectors.lanes, ir.F32Type.get()
        self.floats = e.vector_of(self.lanes, self.element)
        self.tap_bytes = 4 * -(-self.kernel.n // self.lanes) * self.lanes

    def _padding(self) -> ir.Value:
        return e.splat(0.0, self.lanes, self.element)

    def _take_filter(self, block: e.Index) -> None:
        self.filter = e.at(e.pointer(self.weights), e.multiply(block, 4 * self.lanes))

    def _column(self, x: e.Index, edge: bool) -> list[ir.Value]:
        inside = self._inside(x, edge)
        if inside is False:
            return [self._padding()] * self.window.kernel[0]
        return [self._pixel(line, x, inside) for line in self.lines]

    def _start(self) -> list[ir.Value]:
        return [e.splat(0.0, self.lanes, self.element)]

    def _multiplied(self, acc: list[ir.Value], column: list[ir.Value], j: int) -> list[ir.Value]:
        total = acc[0]
        for i, pixel in enumerate(column):
            tap = e.load(self.floats, e.at(self.filter, (i * self.window.kernel[1] + j) * self.tap_bytes))
            total = llvm.FMAOp(pixel, tap, total).result
        return [total]

    def _store(self, made: list[ir.Value], row: e.Index) -> None:
        e.store_vector(made[0], self.out, [row, self.channel], self.mask)


AVX512 = FloatVectors("avx512-f32-depthwise", AVX512_FMA.features, AVX512_FMA.lanes)
AVX2 = FloatVectors("avx2-f32-depthwise", AVX2_FMA.features, AVX2_FMA.lanes)
NEON = FloatVectors("neon-f32-depthwise", (frozenset({"neon"}),), 4)
