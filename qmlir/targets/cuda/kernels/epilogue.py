"""What is done to sums on NVIDIA's GPUs: `gpu_kernels/epilogue.py` on tensors as they stand in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....core.mlir import ir
from ....kernels import emit as e
from ....kernels.bodies import Rule
from ....kernels.description import COLUMN, GROUP, ROW, SLOT, TOKEN, Kernel, Operand
from ....kernels.order import letters
from ...gpu_kernels.epilogue import Epilogue
from . import instructions as gpu
from .operands import follows_rows
from .rules import RULES

# From an operand and its group, row and column to its values.
Fetch: TypeAlias = "Callable[[Operand, e.Index, e.Index, e.Index], ir.Value]"


@dataclass(frozen=True)
class Nvidia:
    """What kernels ask of NVIDIA's GPUs; see `gpu_kernels.machine.Machine`."""

    subgroup: int = 32
    bf16_as_bits: bool = False

    @property
    def rules(self) -> Mapping[str, Rule]:
        return RULES

    def dot(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """`dp4a`."""
        return gpu.dp4a(a, b, total)


class TensorEpilogue(Epilogue):
    """Bodies on `lanes` neighbouring columns. `fetch` reads an operand; rows and columns are numbered as it likes."""

    def __init__(self, kernel: Kernel, lanes: int, fetch: Fetch) -> None:
        super().__init__(kernel, Nvidia(), lanes)
        self._fetch = fetch

    def operand(self, operand: Operand, group: e.Index, row: e.Index, column: e.Index) -> ir.Value:
        at = {GROUP: group, ROW: row, SLOT: row, TOKEN: row, COLUMN: column}
        key = (operand, *(at[axis] for axis in letters(operand) if axis in at))
        if key not in self._read:
            self._read[key] = self._fetch(operand, group, row, column)
        return self._read[key]

    def hold(self, operands: Sequence[Operand], group: e.Index, columns: Sequence[int]) -> None:
        """Read what is the same in all rows."""
        for operand in dict.fromkeys(operands):
            if not follows_rows(operand):
                for column in columns:
                    self.operand(operand, group, 0, column)

    def hold_row(self, operands: Sequence[Operand], group: e.Index, row: e.Index) -> None:
        """Read what is the same in all columns of a row."""
        for operand in dict.fromkeys(operands):
            if follows_rows(operand) and COLUMN not in operand.axes:
                self.operand(operand, group, row, 0)
