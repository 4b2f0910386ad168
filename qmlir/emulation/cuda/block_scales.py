"""Scales of blocks along K in `mma.sync` (`.block_scale`).

PTX ISA, "Warp-level block scaling": a register of each lane holds four one-byte scales. The selectors thread-id and
byte-id say which lane of a quad has the scales of a row of A or of a column of B, and in which byte they start:

    scale of row r of A:     lane 4 (r % 8) + 2 thread-id + r / 8
    scale of column c of B:  lane 4 c + thread-id
    block b along K:         byte byte-id + b
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from .formats import Array
from .instructions import Immediate, PtxError, PtxInstruction, PtxOperand
from .machine import PtxMachine
from .threads import WARP

# By scale_vec, whose digit is the number of scales along K: the byte-ids at which they may start.
_STARTS = {"1X": (0, 1, 2, 3), "2X": (0, 2), "4X": (0,)}
# By kind: depth K of the instruction, and the types of scales by scale_vec (PTX ISA 9.0, table of mma kinds).
_KINDS = {
    "mxf8f6f4": (32, {"1X": ("ue8m0",)}),
    "mxf4": (64, {"2X": ("ue8m0",)}),
    "mxf4nvf4": (64, {"2X": ("ue8m0",), "4X": ("ue4m3",)}),
}
# The lanes whose registers hold the scales of rows of A and of columns of B, with thread-id 0.
ROW_LANES: Array = 4 * (np.arange(16) % 8) + np.arange(16) // 8
COLUMN_LANES: Array = 4 * np.arange(8)
_DEFAULT_VECTOR = {"mxf8f6f4": "1X", "mxf4": "2X"}


@dataclass(frozen=True)
class BlockScales:
    """Layout and type of an instruction's scales."""

    vector: str  # "1X", "2X" or "4X"
    kind: str  # "ue8m0" or "ue4m3"

    @staticmethod
    def of(ins: PtxInstruction, k: int, operands: tuple[str, str]) -> BlockScales:
        """Decode an instruction of depth `k`; `operands`: types of A and B. Raises PtxError if they do not fit."""
        named = [name for name in _KINDS if ins.has(f"::{name}")]
        if len(named) != 1:
            raise PtxError("a product with block scales of an unknown kind")
        (kind,) = named
        vector = next((v for v in _STARTS if ins.has(f"::{v}")), _DEFAULT_VECTOR.get(kind, ""))
        depth, allowed = _KINDS[kind]
        types = ("e4m3", "e5m2") if kind == "mxf8f6f4" else ("e2m1",)
        scale = ins.modifiers[-1]
        if k != depth or scale not in allowed.get(vector, ()) or any(t not in types for t in operands):
            raise PtxError(f"kind::{kind} of {' and '.join(operands)} at k{k} with scale_vec::{vector} of {scale}")
        return BlockScales(vector, scale)

    def rows(self, m: PtxMachine, word: PtxOperand, selectors: PtxOperand, warps: Array) -> Array:
        """Scales of the rows of A: `[warps, 16, blocks]`."""
        return self._read(m, word, selectors, warps, ROW_LANES, 2)

    def columns(self, m: PtxMachine, word: PtxOperand, selectors: PtxOperand, warps: Array) -> Array:
        """Scales of the columns of B: `[warps, 8, blocks]`."""
        return self._read(m, word, selectors, warps, COLUMN_LANES, 1)

    def _read(
        self, m: PtxMachine, word: PtxOperand, selectors: PtxOperand, warps: Array, lanes: Array, lanes_per_id: int
    ) -> Array:
        first, thread = (_immediate(o) for o in m.items(selectors))
        if first not in _STARTS[self.vector]:
            raise PtxError(f"byte-id {first} of scale_vec::{self.vector}")
        if not 0 <= thread < 4 // lanes_per_id:
            raise PtxError(f"thread-id {thread} of scales")
        words = np.broadcast_to(m.read(word, "b32"), m.threads).reshape(-1, WARP)[warps]
        chosen = np.ascontiguousarray(words[:, lanes + lanes_per_id * thread])
        codes = chosen.view(np.uint8).reshape(*chosen.shape, 4)[..., first : first + int(self.vector[0])]
        if self.kind == "ue8m0":
            found: Array = np.ascontiguousarray(codes).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
            return found
        if (codes & 0x80).any():
            raise PtxError("a scale of ue4m3 has its top bit set")
        numbers: Array = np.ascontiguousarray(codes).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        return numbers


def scaled(matrix: Array, scales: Array) -> Array:
    """`[warps, rows, K]` with each block of K multiplied by its scale `[warps, rows, blocks]`."""
    made: Array = matrix * np.repeat(scales, matrix.shape[-1] // scales.shape[-1], axis=-1)
    return made


def _immediate(operand: PtxOperand) -> int:
    if not isinstance(operand, Immediate):
        raise PtxError("a scale selector that is not a constant is not supported")
    return int(operand.value)
