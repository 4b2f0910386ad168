"""Floats by weights that are codes: each code is decoded in registers as the program says, and multiplied as f32.

Weights lie as in integer products, four codes of a column in the 32 bits of a lane (8 or 16 short ones), signed as
two's complement or unsigned, so that a shift or two give the code. The activations are converted to f32 when they are
copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...._mlir import arith, ir, llvm
from ....kernels.description import Literal, Operand, Previous
from . import emit as e
from .gemm import Chunk, Columns
from .micro import QUAD, Weights


@dataclass(frozen=True)
class Fma:
    """Multiply-adds of f32 on vectors of `lanes`."""

    name: str
    features: tuple[frozenset[str], ...]
    lanes: int
    registers: int
    vectors: int = 2
    bits: tuple[int, ...] = (8, 4, 2)
    offset: int = 0
    fewest_rows: int = 1

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    def rows(self, weights: Weights) -> int:
        # Beside the accumulators: stored and decoded weights, a scale and a zero point of each vector, an activation.
        return min(12, (self.registers - 1) // self.vectors - 4)

    def depth(self, weights: Weights) -> int:
        return QUAD * max(4, weights.fields)

    def begin(self, rows: int) -> None:
        """Nothing to set up."""

    def end(self) -> None:
        """Nothing to release."""


AVX512_FMA = Fma("avx512-fma", (frozenset({"avx512f", "avx512bw", "avx512vl"}),), lanes=16, registers=32)
FLOAT_KERNELS = (AVX512_FMA,)


class DecodingChunk(Chunk):
    """A chunk of a product of floats by codes."""

    @cached_property
    def _f32(self) -> Any:
        return ir.F32Type.get()

    # ---- activations

    def _copy_row(self, row: e.Index, first_k: e.Index, target: Any, left: e.Index, r: e.Index) -> None:
        """As f32, zeros behind them."""
        lanes = self.micro.lanes
        wide = e.vector_of(lanes, self._f32)
        ragged = self.kernel.k % lanes != 0

        def step(at: e.Index, mask: Any = None) -> None:
            values = e.load_vector(self.lhs_buffer, [row, e.add(first_k, at)], lanes, mask)
            if values.type != wide:
                values = arith.extf(wide, values)
            e.store(values, e.at(target, e.multiply(at, 4)))

        whole = e.multiply(e.divide(left, lanes), lanes)
        with e.loop(0, whole, lanes) as turn:
            step(turn.index)
        end = whole
        if ragged:
            step(whole, e.first_lanes(e.subtract(left, whole), lanes))
            end = e.add(whole, lanes)
        # Up to the end of the last step: a weight of no code times whatever the stack held might be no number.
        for at in range(-(-self.kernel.k // lanes) * lanes, self.size.padded_k, lanes):
            behind = e.add(end, at - -(-self.kernel.k // lanes) * lanes)
            e.store(e.splat(0.0, lanes, self._f32), e.at(target, e.multiply(behind, 4)))

    # ---- the product

    def _product(
        self, tile: e.Index, panel: e.Index, first_k: e.Index, depth: e.Index, rhs: Any, total: Any, fresh: bool
    ) -> None:
        decode = self.kernel.rhs.decode
        assert decode is not None
        columns = [Columns(self.gemm, panel, v) for v in range(self.vectors)]
        if self.kernel.group is None:
            held = self._held(decode.operands, columns, None)
            self._run(self.lhs, rhs, depth, total, not fresh, held)
            return
        if fresh:
            self._clear(total)
        group = self.group_codes
        with e.loop(0, e.divide(depth, group)) as each:
            start = e.multiply(each.index, group)
            held = self._held(decode.operands, columns, e.add(e.divide(first_k, group), each.index))
            lhs = e.at(self.lhs, e.multiply(start, 4))
            self._run(lhs, e.at(rhs, self._panel_at(start)), group, total, True, held)

    def _run(self, lhs: Any, rhs: Any, depth: e.Index, total: Any, add: bool, held: dict[Any, Any]) -> None:
        """`depth` codes with the same scales."""
        lanes, fields, rows = self.micro.lanes, self.weights.fields, self.size.rows
        words, values = e.vector_of(lanes, e.integer(32)), e.vector_of(lanes, self._f32)
        row_bytes = 4 * self.micro.panel
        grid = [(r, v) for r in range(rows) for v in range(self.vectors)]
        # A multiply-add takes four cycles, and two start in each.
        sets = max(1, min(8 // len(grid), QUAD))
        zero = e.splat(0.0, lanes, self._f32)
        place = {(r, v): e.at(total, self._vector_at(r, v)) for r, v in grid}
        begin = [e.load(values, place[rv]) if add and s == 0 else zero for s in range(sets) for rv in grid]
        with e.loop(0, e.divide(depth, QUAD * fields), 1, begin) as turn:
            acc = list(turn.values)
            a = e.at(lhs, e.multiply(turn.index, 4 * QUAD * fields))
            b = e.at(rhs, e.multiply(turn.index, row_bytes))
            stored = [e.load(words, e.at(b, 4 * lanes * v)) for v in range(self.vectors)]
            for k in range(QUAD * fields):
                weights = [self._decoded(s, k, held, v) for v, s in enumerate(stored)]
                for r in range(rows):
                    one = e.broadcast(e.load(self._f32, e.at(a, r * self.lhs_stride + 4 * k)), lanes)
                    for v in range(self.vectors):
                        i = (k % sets) * len(grid) + r * self.vectors + v
                        acc[i] = llvm.FMAOp(one, weights[v], acc[i]).result
            turn.next = acc
        for i, rv in enumerate(grid):
            sum_ = turn.results[i]
            for s in range(1, sets):
                sum_ = arith.addf(sum_, turn.results[s * len(grid) + i])
            e.store(sum_, place[rv])

    def _decoded(self, stored: Any, k: int, held: dict[Any, Any], v: int) -> Any:
        """Code `k` of each lane as the f32 that is multiplied."""
        decode = self.kernel.rhs.decode
        assert decode is not None
        field, byte = divmod(k, QUAD)
        bits, lanes = self.weights.bits, self.micro.lanes
        low = 8 * byte + bits * field

        def shift(op: Any, value: Any, count: int) -> Any:
            return op(value, e.splat(count, lanes, e.integer(32))) if count else value

        if self.weights.signed:
            code = shift(arith.shrsi, shift(arith.shli, stored, 32 - bits - low), 32 - bits)
        else:
            code = arith.andi(shift(arith.shrui, stored, low), e.splat((1 << bits) - 1, lanes, e.integer(32)))
        code = arith.trunci(e.vector_of(lanes, e.integer(8)), code)
        arguments = []
        for source in decode.sources:
            if isinstance(source, Previous):
                arguments.append(code)
            elif isinstance(source, Operand):
                arguments.append(held[source, v])
            else:
                assert isinstance(source, Literal)
                arguments.append(self.cloner.splat(source.value))
        value = self.cloner.clone(decode.body, arguments)
        wide = e.vector_of(lanes, self._f32)
        return value if value.type == wide else arith.extf(wide, value)
