"""Products on tensor cores, by `mma.sync`.

A workgroup computes one tile of the result. `cp.async` copies tiles of both operands to shared memory, several ahead of
the one that is multiplied (`shared_tile.py`); `ldmatrix` loads them to registers; the stages of the kernel run on the
accumulators, and only the result is written.

Neighbouring columns are assigned to fragments in turn, so that a lane holds neighbours: of `fragments` fragments of 8
columns, column c of fragment j is column `fragments * c + j` of the result. Lane t of a quad has columns 2 t and
2 t + 1 of each fragment, so `2 * fragments` neighbours: it loads their scales and stores their results as one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ....core.mlir import arith, ir
from ....kernels.row_sums import uses_row_sums
from ...gpu_kernels import emit as e
from ...gpu_kernels.loop import Run, TileLoop, Where, Workgroup
from ...gpu_kernels.weights import CHUNK
from ...gpu_kernels.window import Image, ImagePlace
from . import instructions as gpu
from .decode import Decoder
from .handed_groups import HandedGroups
from .product import TiledProduct
from .shared_tile import SharedTile

# The stored word of this lane, by fragment and chunk.
Words: TypeAlias = "dict[tuple[int, int], ir.Value]"

_ONES = 0x01010101  # a word of four codes 1
_FLIP = 0x80808080  # inverts the top bit of four codes


class Block(TileLoop):
    """The work of one workgroup. Its threads copy tiles of K ahead of use (`_copies`), and wait for one (`advance`)
    before the warps multiply it. Warps along K take different steps of each tile and add up their sums at the end, or
    they compute different groups (`handed_groups.py`)."""

    def __init__(self, gemm: TiledProduct, workgroup: Workgroup) -> None:
        kernel, tile, epilogue = gemm.kernel, gemm.tile, workgroup.epilogue
        super().__init__(kernel, gemm.machine, workgroup.place, epilogue, gemm.k_tiles)
        self.gemm, self.tile, self.mma = gemm, tile, gemm.mma
        self.tiled, self.lanes, self.rows = gemm.tiled, gemm.lanes, workgroup.place.rows
        self.thread = gpu.thread_id(tile.threads)
        self.m0, self.n0 = (e.multiply(at, size) for at, size in zip(workgroup.tile, gemm.shape, strict=True))
        self._whole = isinstance(self.rows, int) and self.rows % tile.m == 0, kernel.n % tile.n == 0
        self._lanes()
        self.end: e.Index = 0  # one past the last tile of K
        self._sides(workgroup.lhs, workgroup.rhs)
        if kernel.combine is not None and (tile.is_small or gemm.hands_over):
            held = [self.where(r).safe_row for r in range(0, self.run_count, self.per_row)]
            self.group_reads = epilogue.ahead(kernel.combine.operands, held, self._columns(range(self.per_row)))

    def _lanes(self) -> None:
        """Find this lane's place in the tile and in a fragment."""
        lane, warp = e.remainder(self.thread, 32), e.divide(self.thread, 32)
        rows, columns = self.tile.warp
        self.lane = lane
        across, down = self.tile.warps[1], self.tile.warps[0]
        self.warp_row = e.multiply(e.remainder(e.divide(warp, across), down), rows)
        self.warp_column = e.multiply(e.remainder(warp, across), columns)
        self.k_warp = 0 if self.tile.warps[2] == 1 else e.divide(warp, across * down)
        self.m_fragments, self.n_fragments = rows // 16, columns // 8
        self.interleave = self.tiled.interleave
        self.across = self.n_fragments * 2 // self.gemm.lanes  # runs of a lane's results in a row
        self.wants_sums = uses_row_sums(self.kernel)
        self.decoder = Decoder(self)

    def _sides(self, lhs: ir.Value, rhs: ir.Value) -> None:
        """Make the shared-memory rings of both sides."""
        shapes, kernel, rows = self.gemm.shapes, self.kernel, self.rows
        # The row length of the packed weight itself: another kernel that reads it may have padded the rows further.
        rhs_length = ir.MemRefType(rhs.type).shape[-1] if self.gemm.constant else kernel.k
        common = (self.thread, self.tile.threads)
        few = rows if isinstance(rows, int) and rows < shapes[0].rows else None
        outer = [self.place.product] if kernel.batch is not None and self.place.gathered is None else []
        window = kernel.lhs.window
        self.lhs: SharedTile[e.Index] | SharedTile[ImagePlace]
        if window is None:
            self.lhs = SharedTile(
                shapes[0], lhs, kernel.k, *common, self._lhs_row, lambda row, k: [*outer, row, k], few
            )
        else:
            # All columns of a tile are filters of one group.
            group = e.divide(self.n0, kernel.n // window.groups) if window.groups > 1 else 0
            image = Image(window, e.multiply(group, window.channels))
            padding = window.padding ^ (-0x80 if kernel.lhs.flipped else 0)  # as it is stored in memory
            self.lhs = SharedTile(
                shapes[0], lhs, kernel.k, *common, lambda row: image.row(self._lhs_row(row)), image.address, few,
                window.channels, image.there, padding,
            )  # fmt: skip
        self.rhs = SharedTile(shapes[1], rhs, rhs_length, *common, self._rhs_row, self.place.of_matrix)

    def _lhs_row(self, row: e.Index) -> e.Index:
        """The row of the activation that a row of the tile holds; past the last row, the last one again."""
        m = e.add(self.m0, row)
        if not self._whole[0]:
            m = self.place.inside(m)
        return m if self.place.gathered is None else self.place.token(m)

    def _rhs_row(self, row: e.Index) -> e.Index:
        """The column of the result whose weights a row of the tile holds."""
        size = 8 * self.interleave
        within = self.tiled.columns.place("column", index=e.remainder(row, size))
        n = e.add(self.n0, e.add(e.multiply(e.divide(row, size), size), within))
        return n if self.kernel.n % self.tile.n == 0 else e.minimum(n, self.kernel.n - 1)

    # ---- the loop

    @property
    def keeps(self) -> e.Condition:
        return self.gemm.hands_over or e.equal(self.k_warp, 0)

    @property
    def ahead(self) -> int:
        """Tiles of K in flight."""
        return self.tile.stages - 1

    def start(self, first: e.Index, last: e.Index) -> list[ir.Value]:
        """Start copying the first tiles. The loop carries the ring positions of the tile to multiply and of the tile to
        copy, and the operands that decode the weight."""
        self.end = last
        for stage in range(self.ahead):
            self._copies(e.add(first, stage), stage)
        tiles = [e.minimum(e.add(first, i), e.subtract(last, 1)) for i in range(self._read_ahead)]
        return [e.index(0), e.index(self.ahead), *(value for tile in tiles for value in self.decoder.load(tile))]

    @property
    def _read_ahead(self) -> int:
        """Tiles of K by which the operands that decode a weight are read ahead: memory takes longer than one tile."""
        return self.ahead if self.tile.is_small else 1

    def _copies(self, k_tile: e.Index, stage: e.Index) -> None:
        wanted = e.less(k_tile, self.end)
        self.lhs.copy(k_tile, stage, wanted)
        self.rhs.copy(k_tile, stage, wanted)
        gpu.commit()

    def advance(self, k_tile: e.Index, ring: Sequence[ir.Value]) -> None:
        """Wait for tile `k_tile`, then copy the tile that is furthest ahead to the position of the tile before it."""
        gpu.wait(self.ahead - 1)
        e.barrier()
        self._copies(e.add(k_tile, self.ahead), ring[1])

    def moved(self, ring: Sequence[ir.Value]) -> list[ir.Value]:
        moved = [e.add(place, 1) for place in ring]
        return [e.index(e.choose(e.equal(place, self.tile.stages), 0, place)) for place in moved]

    def step(
        self, step: e.Index, totals: list[ir.Value], held: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        ring, read = held[:2], held[2:]
        count = len(read) // self._read_ahead
        self.decoder.held = read[:count]
        # These operands are needed `_read_ahead` tiles later.
        new = self.decoder.load(e.minimum(e.add(step, self._read_ahead), e.subtract(self.end, 1)))
        self.advance(step, ring)
        return self._tile(ring[0], totals), [*self.moved(ring), *read[count:], *new]

    def groups(self, first: e.Index, last: e.Index, held: list[ir.Value]) -> list[ir.Value]:
        """See `TileLoop`. The groups of one tile are combined one after another."""
        if self.gemm.hands_over:
            return HandedGroups(self, self._steps_per_warp).totals(first, last, held)
        if not self._shares_tiles:
            return super().groups(first, last, held)
        inside = self.tile.k // (self.kernel.group or self.tile.k)
        rest = self.kernel.groups % inside  # groups of an incomplete last tile
        whole = e.subtract(last, int(rest > 0))
        totals = [self.epilogue.start() for _ in range(self.run_count)]
        with e.loop(first, whole, 1, [*held, *totals]) as k_tile:
            ring, totals = k_tile.values[:2], k_tile.values[2:]
            totals = self._groups(ring, totals, k_tile.index, inside)
            k_tile.next = [*self.moved(ring), *totals]
        ring, totals = k_tile.results[:2], k_tile.results[2:]
        return self._groups(ring, totals, whole, rest) if rest else list(totals)

    @property
    def _shares_tiles(self) -> bool:
        """Whether several groups share a tile of K."""
        return (self.kernel.group or self.tile.k) < self.tile.k

    def _groups(self, ring: list[ir.Value], totals: list[ir.Value], k_tile: e.Index, count: int) -> list[ir.Value]:
        """The totals after `count` groups of a tile."""
        group = self.kernel.group or self.tile.k
        inside, steps = self.tile.k // group, group // self.mma.depth
        self.advance(k_tile, ring)
        for i in range(count):
            state = self.steps_of(ring[0], self.zeros(), range(i * steps, (i + 1) * steps))
            totals = self._combined(totals, state, e.add(e.multiply(k_tile, inside), i))
        return totals

    def _tile(self, stage: e.Index, state: Sequence[ir.Value]) -> list[ir.Value]:
        """The accumulators after this warp's steps of one tile."""
        return self.steps_of(stage, state, range(self._steps_per_warp))

    @property
    def _steps_per_warp(self) -> int:
        return self.tile.k // self.mma.depth // self.tile.warps[2]

    def added(self, totals: list[ir.Value]) -> list[ir.Value]:
        """Add up the sums of the warps along K through shared memory; the first of these warps gets the result."""
        others, holders = self.tile.warps[2] - 1, self.tile.threads // self.tile.warps[2]
        if not others:
            return totals
        add = arith.addf if self.mma.acc == "f32" else arith.addi
        memory, holder = e.shared([others, len(totals), holders], totals[0].type), e.remainder(self.thread, holders)
        with e.when(e.less(0, self.k_warp)):
            for i, value in enumerate(totals):
                e.store(value, memory, [e.subtract(self.k_warp, 1), i, holder])
        e.barrier()
        for other in range(others):
            totals = [add(value, e.load(memory, [other, i, holder])) for i, value in enumerate(totals)]
        return totals

    # ---- a tile of K

    def zeros(self) -> list[ir.Value]:
        """Zero accumulators, fragment by fragment, followed by those of the row sums."""
        count = self.m_fragments * (self.n_fragments + int(self.wants_sums))
        return [e.zero(self.kernel.acc_type)] * (4 * count)

    def steps_of(self, stage: e.Index, state: Sequence[ir.Value], steps: Sequence[int]) -> list[ir.Value]:
        """The accumulators after some steps of one tile."""
        state = list(state)
        acc = [state[i : i + 4] for i in range(0, len(state), 4)]
        rhs: dict[int, tuple[Words, int]] = {}
        for step in steps:
            lhs = [self.mma.lhs(self._lhs_words(stage, i, step)) for i in range(self.m_fragments)]
            if step not in rhs:
                rhs |= self._rhs_words(stage, step)
            for j in range(self.n_fragments):
                fragment = self._rhs_fragment(*rhs[step], j, step)
                for i in range(self.m_fragments):
                    at = i * self.n_fragments + j
                    acc[at] = self.mma(lhs[i], fragment, acc[at])
            if self.wants_sums:
                ones = [e.word(_ONES)] * (self.mma.depth // CHUNK)
                for i in range(self.m_fragments):
                    at = self.m_fragments * self.n_fragments + i
                    acc[at] = self.mma(lhs[i], ones, acc[at])
        return [value for fragment in acc for value in fragment]

    def _lhs_words(self, stage: e.Index, i: int, step: int) -> list[ir.Value]:
        """The words of a fragment of 16 rows: of rows r and r + 8, then of the same rows at the next chunk."""
        chunks = self.mma.step_bytes // CHUNK
        row = e.remainder(self.lane, 16)
        first = e.multiply(e.add(e.multiply(self.k_warp, self._steps_per_warp), step), chunks)
        chunk = e.add(e.divide(self.lane, 16), first) if chunks == 2 else first
        place = e.add(self.warp_row, e.add(row, 16 * i))
        stored = self.lhs.shape.rows
        if stored < self.tile.m:
            row = place = e.minimum(place, stored - 1)
        words = self.lhs.words(stage, place, row, chunk, 2 * chunks)
        if self.kernel.lhs.flipped:
            flip = e.word(_FLIP)
            words = [arith.xori(word, flip) for word in words]
        return words

    def _rhs_words(self, stage: e.Index, step: int) -> dict[int, tuple[Words, int]]:
        """The stored words of all fragments, for `step` and every other step whose codes are in the same chunks; with
        the number of each among these steps."""
        storage = self.gemm.storage
        fields, per_step = storage.fields, self.mma.depth // CHUNK
        if per_step >= fields:
            count, chunks, steps = per_step // fields, step * per_step // fields, [step]
        else:
            first = step * per_step // fields * fields // per_step
            count, chunks, steps = 1, first * per_step // fields, list(range(first, first + fields // per_step))
        first_chunk = e.add(e.multiply(self.k_warp, self._steps_per_warp * per_step // fields), chunks)
        pairs = [(j, c) for j in range(self.n_fragments) for c in range(count)]
        words: Words = {}
        while pairs:
            batch = next(size for size in (4, 2, 1) if len(pairs) >= size)
            now, pairs = pairs[:batch], pairs[batch:]
            row = e.remainder(self.lane, 8)
            number = e.remainder(e.divide(self.lane, 8), batch)
            column = e.add(e.multiply(e.divide(number, count), 8), 8 * now[0][0])
            chunk = e.add(e.remainder(number, count), first_chunk)
            place = e.add(self.warp_column, e.add(row, column))
            for key, word in zip(now, self.rhs.words(stage, place, row, chunk, batch), strict=True):
                words[key] = word
        return {s: (words, i) for i, s in enumerate(steps)}

    def _rhs_fragment(self, words: Words, number: int, j: int, step: int) -> list[ir.Value]:
        """Fragment j at a step, which is the `number`th of those whose codes share the chunks of `words`. Codes are
        unpacked only here, because registers are scarce."""
        if self.kernel.rhs.decode is not None:
            return self.decoder.fragment(words[j, 0], number, j, step)
        storage, per_step = self.gemm.storage, self.mma.depth // CHUNK
        fields = range(number * per_step, (number + 1) * per_step)
        return self.mma.rhs([storage.bytes_of(words[j, f // storage.fields], [f % storage.fields])[0] for f in fields])

    # ---- from fragments to runs of neighbouring columns

    def runs(self, totals: list[ir.Value]) -> list[Run]:
        """The runs of all columns, or of the first ones if `totals` has no more; runs of a row are consecutive."""
        fragments = [totals[i : i + 4] for i in range(0, len(totals), 4)]
        across = len(fragments) // self.m_fragments - int(self.wants_sums)
        sums: list[list[ir.Value]] = fragments[self.m_fragments * across :]
        runs: list[ir.Value] = []
        row_sums: list[ir.Value | None] = []
        for i in range(self.m_fragments):
            for half in range(2):
                row_sum = self._unpadded(sums[i][2 * half]) if sums else None
                for first in range(0, across, self.interleave):
                    at = i * across + first
                    values = [fragments[at + fragment][2 * half + v] for v, fragment in self.tiled.held]
                    runs += [e.gathered(values[s : s + self.lanes]) for s in range(0, len(values), self.lanes)]
                row_sums += [row_sum] * (len(runs) - len(row_sums))
        return self.of_bytes(runs, row_sums, self.gemm.storage.shift)

    def _unpadded(self, total: ir.Value) -> ir.Value:
        """A row's sum without the zeros past its end, each of which is -128 once flipped."""
        padding = self.gemm.padded_k - self.kernel.k
        if not self.kernel.lhs.flipped or not padding or self.kernel.group is not None:
            return total
        return arith.addi(total, e.word(128 * padding))

    @property
    def per_row(self) -> int:
        """Runs per row that this thread finishes."""
        return 1 if self.gemm.hands_over else self.across

    @property
    def run_count(self) -> int:
        return 1 if self.gemm.hands_over else 2 * self.m_fragments * self.across

    def where(self, number: int) -> Where:
        """The place of a run, in row r or r + 8 of each 16 rows. If warps along K compute different groups, each
        finishes another run."""
        run = self.k_warp if self.gemm.hands_over else number
        r, v = e.divide(run, self.across), e.remainder(run, self.across)
        row, safe_row = self.epilogue.once(("row", r), lambda: self._row(r))
        column, safe_column = self.epilogue.once(("column", v), lambda: self._column(v))
        return Where(row, column, safe_row, safe_column)

    def _row(self, r: e.Index) -> tuple[e.Index, e.Index]:
        """The row of half `r`, and an existing row to read in its place."""
        inside = e.add(self.tiled.result.place("row", lane=self.lane), e.multiply(r, 8))
        m = e.add(self.m0, e.add(self.warp_row, inside))
        return m, m if self._whole[0] else self.place.inside(m)

    def _column(self, v: e.Index) -> tuple[e.Index, e.Index]:
        """The first column of run `v` of this lane, and an existing column to read in its place."""
        per_run = len(self.tiled.held) // self.lanes
        first = self.tiled.result.place("column", lane=self.lane)
        inside = e.add(first, e.multiply(e.divide(v, per_run), self.tiled.result.extent("column")))
        n = e.add(self.n0, e.add(self.warp_column, e.add(inside, e.multiply(e.remainder(v, per_run), self.lanes))))
        return n, n if self._whole[1] else e.minimum(n, self.kernel.n - self.lanes)

    def _columns(self, numbers: Sequence[int]) -> list[e.Index]:
        """The first column to read of each run of a row in `numbers`."""
        return [self.where(v).safe_column for v in numbers]

    def _combined(self, totals: list[ir.Value], parts: list[ir.Value], group: e.Index) -> list[ir.Value]:
        assert self.kernel.combine is not None
        runs = self.runs(parts)
        with self.epilogue.scope():
            self.epilogue.hold(self.kernel.combine.operands, group, [], self._columns(range(self.per_row)))
            return self._in_rows(totals, runs, group, range(self.per_row))

    def _in_rows(
        self, totals: Sequence[ir.Value], runs: Sequence[Run], group: e.Index, columns: Sequence[int]
    ) -> list[ir.Value]:
        """The totals of the runs in some columns with one more group combined. Per-row operands are read when their row
        is reached, because registers are scarce."""
        assert self.kernel.combine is not None
        made: list[ir.Value] = []
        for i, (total, run) in enumerate(zip(totals, runs, strict=True)):
            r, v = divmod(i, len(columns))
            at = self.where(r * self.per_row + columns[v])
            self.epilogue.hold(self.kernel.combine.operands, group, [at.safe_row], [])
            made.append(self.epilogue.combine(total, run.value, run.row_sum, group, at.safe_row, at.safe_column))
        return made

    def store(self, runs: Sequence[Run]) -> None:
        """Finish and store the runs of the rows that exist."""
        operands = [o for stage in self.kernel.stages for o in stage.operands]
        self.epilogue.hold(operands, 0, [], self._columns(range(self.per_row)))
        for first in range(0, len(runs), self.per_row):
            at = self.where(first)
            place, inside = self.epilogue.goes(at)
            with e.when(inside), self.epilogue.scope():
                self.epilogue.hold(operands, 0, [at.safe_row], [])
                for i in range(first, first + self.per_row):
                    self._stored(runs[i], self.where(i), place)
