"""Products with block scales along K on scaled MFMA (CDNA4): MXFP8 and MXFP4.

The loop is that of other products (`matrix.py`). In addition to the codes of a step a lane loads the words of four
scales of its columns and rows that the instructions take, and shifts the scale of its own block to the lowest byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.mlir import arith, ir
from ....kernels.description import COLUMN, GROUP, ROW, Kernel
from ...gpu_kernels import emit as e
from ...gpu_kernels.plan import accepted, fastest
from ...gpu_kernels.scaled import lacks_scaled, scaled_product
from ...gpu_kernels.stages import Fetched
from ...gpu_kernels.weights import CodeFormat
from ...roofline import roofline
from ...strategy import Accept, Contraction, Decline, Facts
from .instructions import SCALED, ScaledMfma
from .matrix import KStep, MatrixKernel, Wave
from .strategy import MatrixStrategy

# Bytes along K of one load of a lane, and loads per step.
_RUN, _LOADS = 16, 2
_LEAST_ROWS = 16  # of an instruction


class _ScaledWave(Wave):
    plan: ScaledMatrixKernel
    _words: list[ir.Value]  # words of scales of the step that is multiplied

    def fetch(self, step: e.Index) -> list[Fetched]:
        return [*super().fetch(step), Fetched(held=self._scales(step))]

    @property
    def _instructions(self) -> int:
        """Instructions per step along K, which is the number of words of scales of a row or column."""
        return self.along_k.depth // self.instruction.k

    def _scales(self, step: e.Index) -> list[ir.Value]:
        """The words of a step, for each column tile, then for each row tile. Past the last word it is the last one
        again: the codes there are zeros, and if one of its scales is NaN, the sum is NaN anyway."""
        of_row, of_column = self.kernel.scales
        last = self.kernel.k // self.instruction.k - 1
        words = [e.minimum(e.add(e.multiply(step, self._instructions), i), last) for i in range(self._instructions)]
        columns = [
            e.minimum(e.add(e.multiply(e.add(self.first_tile, c), 16), self.weight_column), self.kernel.n - 1)
            for c in range(self.tiles.columns)
        ]
        rows = [self.place.inside(e.add(self.first_row, e.add(self.right_row, 16 * r))) for r in range(self.tiles.rows)]
        places = [(of_column, COLUMN, column) for column in columns] + [(of_row, ROW, row) for row in rows]
        return [
            self.epilogue.number(operand, {axis: place, GROUP: word})
            for operand, axis, place in places
            for word in words
        ]

    def multiply(self, step: e.Index, half: e.Index, totals: list[ir.Value], held: list[ir.Value]) -> list[ir.Value]:
        count = (self.tiles.columns + self.tiles.rows) * self._instructions
        scales = self.plan.scaled.fragments.a_scale
        assert scales is not None
        block = scales.place("s", lane=self.lane)
        shift = arith.index_castui(e.integer(32), e.index(e.multiply(block, 8)))
        self._words = [arith.shrui(word, shift) for word in held[-count:]]
        return super().multiply(step, half, totals, held[:-count])

    def product(
        self, left: list[ir.Value], right: list[ir.Value], total: ir.Value, place: tuple[int, int, int]
    ) -> ir.Value:
        row, column, number = place
        of_row = self._words[(self.tiles.columns + row) * self._instructions + number]
        of_column = self._words[column * self._instructions + number]
        return self.plan.scaled.scaled(left, right, (of_column, of_row), total)


@dataclass(frozen=True)
class ScaledMatrixKernel(MatrixKernel):
    """A kernel of codes and scales."""

    wave = _ScaledWave

    @property
    def facts(self) -> Facts:
        bits = self.scaled.code_bits
        return {**super().facts, "weight_bits": bits, "block": self.scaled.block}

    @property
    def scaled(self) -> ScaledMfma:
        assert isinstance(self.step.instruction, ScaledMfma)
        return self.step.instruction


@dataclass(frozen=True, kw_only=True)
class ScaledMatrixStrategy(MatrixStrategy):
    """Products of one-byte or half-byte floats with one power-of-two scale per 32 codes along K."""

    name: str = "scaled-mma"

    def unlike(self, c: Contraction) -> Decline | None:
        return lacks_scaled(self.target, c)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if kernel.m is not None and kernel.m < _LEAST_ROWS:
            return Decline(f"{kernel.m} rows leave most of an instruction's unused", "16 rows")
        product = scaled_product(kernel, c, SCALED.get(self.machine.arch, ()))
        if isinstance(product, Decline):
            return product
        if kernel.k % product.instruction.k:
            return Decline(
                f"a K of {kernel.k} is not a multiple of the instruction's K, so codes and scales would have to be "
                "padded",
                f"a multiple of {product.instruction.k}",
            )
        step = KStep(product.instruction, _RUN, _LOADS, 1, CodeFormat())
        plans = fastest(self.made(product.kernel, step, ScaledMatrixKernel), product.weight, self.target)
        if not plans:
            return Decline("none of the tiles fits the registers", "smaller ones")
        return product.accepted(accepted(plans, roofline(self.target, c)))
