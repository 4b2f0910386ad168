"""Register tiles of floats by weights of codes for 64-bit Arm: `fmla` on vectors of four.

Sixteen codes are decoded at a time: two along K of each of eight columns. Short codes are looked up byte by byte: `tbl`
finds one byte of the f32 value of each of 16 codes, and the bytes are then zipped to f32. If all values are exact in
bf16, as small integers are, two of their four bytes are zero, and a widening shift replaces two lookups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith, ir, llvm, vector
from ....kernels.layouts import WeightLayout
from . import emit as e
from .arm_micro import ShortCodes
from .float_micro import Chains, FloatMicro, FloatTile, Fma
from .micro import Weights

if TYPE_CHECKING:
    from ....dialect.dtypes import Array

_LANES, _BYTES = 4, 16
_K = 2  # codes along K in one vector of codes


@dataclass(frozen=True)
class NeonFma(Fma):
    """Tiles of up to 10 rows by 8 columns."""

    def rows(self, weights: Weights) -> int:
        # Registers besides the accumulators: four decoded vectors, the table, and the intermediates of a lookup.
        return 10

    def layout(self, n: int, k: int, k_last: bool, weights: Weights) -> WeightLayout:
        if weights.values is None:
            return super().layout(n, k, k_last, weights)
        np_, kp = -(-n // self.panel) * self.panel, -(-k // self.depth(weights)) * self.depth(weights)
        columns = (np_ // self.panel, self.panel)
        if weights.bits == 8:
            return WeightLayout((np_, kp), (columns, (kp,)), (0, 2, 1))
        # [N/8, 8, K/2f, f, 2] -> [N/8, K/2f, f, 2, 8]
        shared = (kp // (_K * weights.fields), weights.fields, _K)
        return WeightLayout(
            (np_, kp), (columns, shared), (0, 2, 3, 4, 1), bits=weights.bits, field=2, offset=weights.offset
        )

    def accumulate(self, tile: FloatTile, weights: Weights) -> list[ir.Value]:
        """See `FloatMicro`."""
        step = max(2 * _K, _K * weights.fields)  # codes along K per iteration
        chains = Chains(tile.rows, self.vectors, self.lanes, step)
        floats, codes = e.vector_of(_LANES, ir.F32Type.get()), e.vector_of(_BYTES, e.integer(8))
        decode = _Floats(weights)
        zeros = [arith.sitofp(floats, zero) for zero in tile.zeros]
        with e.loop(0, tile.codes, step, chains.start) as turn:
            acc = list(turn.values)
            lhs = e.at(tile.lhs, e.multiply(turn.index, 4))
            rhs = e.at(tile.rhs, e.divide(e.multiply(turn.index, self.panel * weights.bits), 8))
            stored: dict[int, ir.Value] = {}
            for k in range(0, step, _K):
                place, field = divmod(k // _K, weights.fields)
                if place not in stored:
                    stored[place] = e.load(codes, e.at(rhs, place * _BYTES))
                found = decode(stored[place], field)
                for r in range(tile.rows):
                    pair = e.load(e.vector_of(_K, ir.F32Type.get()), e.at(lhs, r * tile.lhs_stride + 4 * k))
                    for i in range(_K):
                        one = vector.shuffle(pair, pair, [i] * _LANES)
                        for v in range(self.vectors):
                            value = found[i * self.vectors + v]
                            if zeros:
                                value = arith.subf(value, zeros[v])
                            at = chains.place(k + i, r, v)
                            acc[at] = llvm.FMAOp(one, value, acc[at]).result
            turn.next = acc
        return chains.sums(turn.results)


class _Floats:
    """Decodes sixteen stored codes to four vectors of f32."""

    def __init__(self, weights: Weights) -> None:
        assert weights.values is not None
        self.weights = weights
        self.codes = ShortCodes(Weights(weights.bits, 0))
        if weights.bits == 8:
            self.first = weights.values[0] + 128  # the value of code 0
            return
        bytes_ = np.resize(np.array(weights.values, np.float32), _BYTES).view(np.uint8).reshape(_BYTES, 4).T
        # In values that are exact in bf16 only the upper two bytes are nonzero.
        self.tables = [self._table(line) for line in (bytes_ if bytes_[:2].any() else bytes_[2:])]

    def _table(self, line: Array) -> ir.Value:
        return e.bytes_constant([int(byte) for byte in line])

    def __call__(self, stored: ir.Value, field: int) -> list[ir.Value]:
        if self.weights.bits == 8:
            wide = arith.extsi(e.vector_of(_BYTES, e.integer(32)), stored)
            whole = arith.sitofp(e.vector_of(_BYTES, ir.F32Type.get()), wide)
            parts = [vector.shuffle(whole, whole, list(range(at, at + _LANES))) for at in range(0, _BYTES, _LANES)]
            first = e.splat(self.first, _LANES, ir.F32Type.get())
            return parts if self.first == 0 else [arith.addf(part, first) for part in parts]
        code = self.codes(stored, field)
        bytes_ = [e.intrinsic("llvm.aarch64.neon.tbl1.v16i8", [table, code], code.type) for table in self.tables]
        halves, words = e.vector_of(_BYTES // 2, e.integer(16)), e.vector_of(_LANES, e.integer(32))
        pairs = [
            [vector.bitcast(halves, half) for half in _zipped(*bytes_[at : at + 2])] for at in range(0, len(bytes_), 2)
        ]
        made = []
        for high in pairs[-1]:
            if len(pairs) == 1:
                parts = [vector.shuffle(high, high, list(range(at, at + _LANES))) for at in (0, _LANES)]
                made += [arith.shli(arith.extui(words, part), e.splat(16, _LANES, e.integer(32))) for part in parts]
            else:
                made += _zipped(pairs[0][len(made) // 2], high)
        return [vector.bitcast(e.vector_of(_LANES, ir.F32Type.get()), word) for word in made]


def _zipped(a: ir.Value, b: ir.Value) -> list[ir.Value]:
    """Interleave the elements of two vectors, into two vectors."""
    n = a.type.shape[0]
    orders = [[i + n * part for i in range(at, at + n // 2) for part in range(2)] for at in (0, n // 2)]
    return [vector.shuffle(a, b, order) for order in orders]


NEON_FMA = NeonFma("neon-fma", (frozenset({"neon"}),), lanes=_LANES, registers=32)
FLOAT_KERNELS: tuple[FloatMicro, ...] = (NEON_FMA,)
