"""Products on tensor cores, by `mma.sync`.

A workgroup computes one tile of the result. Tiles of both operands come to shared memory by `cp.async`, several ahead
of the one that is multiplied (`shared_tile.py`); `ldmatrix` brings them to registers; the stages of the kernel run on
the accumulators, and only the result is written.

Columns are dealt to fragments so that a lane ends up with neighbours: of `fragments` fragments of 8 columns, column c
of fragment j is column `fragments * c + j` of the result. A lane holds columns 2 t and 2 t + 1 of each, so
`2 * fragments` neighbours, which it loads scales for and stores as one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ....core.mlir import arith, ir, memref, vector
from ....kernels import emit as e
from ....kernels.description import (
    BATCH,
    COLUMN,
    GROUP,
    MATRIX,
    ROW,
    SLOT,
    TOKEN,
    Kernel,
    Operand,
    Stage,
)
from ....kernels.outline import Scratch, has_tokens, picks
from ....kernels.row_sums import uses_row_sums
from ....kernels.tile.instruction import TiledMma
from ...gpu_kernels.executable import KernelBody, KernelFunction, Launch, executable
from . import instructions as gpu, stream_k
from .decode import Decoder
from .epilogue import TensorEpilogue
from .executable import function_of, in_a_row, with_scratch, workgroup_id
from .halves import halves
from .image import Image, ImagePlace
from .operands import fetch
from .raster import batch_of, blocks, place
from .shared_tile import CHUNK, RingShape, SharedTile
from .tile import Tile
from .weights import Storage

# Of each fragment and chunk the stored word of this lane.
_Words: TypeAlias = "dict[tuple[int, int], ir.Value]"

_NO_ROW = 1 << 31  # from here on 32 bits are a negative number
_ONES = 0x01010101  # a word of four codes of one
_FLIP = -0x7F7F7F80  # 0x80808080: turns the top bit of four codes


@dataclass(frozen=True)
class MmaGemm:
    """A kernel on one tile: of integers, or of 16-bit floats by a weight of codes."""

    kernel: Kernel
    tile: Tile
    storage: Storage
    constant: bool  # the weight is packed, its K padded
    workgroups: int = 0  # that share K of all tiles (stream_k.py); 0: each has a tile of its own
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
    def tiles_per_step(self) -> int:
        """Tiles of K that are multiplied as one: those of a group whose sum is combined, else one."""
        return max(1, (self.kernel.group or 0) // self.tile.k) if self.kernel.combine is not None else 1

    @property
    def k_steps(self) -> int:
        return -(-self.k_tiles // self.tiles_per_step)

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
    def axes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of the two sides, as the kernel is given them."""
        batch = self.kernel.batch
        if batch is None:
            return (ROW, "k"), (COLUMN, "k")
        return ((BATCH, ROW, "k") if batch.rows is None else (ROW, "k")), (MATRIX, COLUMN, "k")

    @property
    def variant(self) -> Tile:
        """What makes it another than other kernels of a product."""
        return self.tile

    def of(self, kernel: Kernel) -> MmaGemm:
        """The same for another number of rows."""
        return replace(self, kernel=kernel)

    @property
    def launch(self) -> Launch:
        if self.workgroups:
            return in_a_row(self.tile.threads, lambda rows: stream_k.launched(self, rows))
        return in_a_row(self.tile.threads, lambda rows: blocks(self.kernel, self.tile, rows))

    @property
    def scratch(self) -> Scratch | None:
        """What the kernel needs beside its operands."""
        return stream_k.scratch(self) if self.workgroups else None

    def emit(self, name: str, inputs: Sequence[ir.Type], result: ir.Type) -> str:
        """An executable at the insertion point; returns its entry point."""
        return executable(name, self.function(inputs, result))

    def function(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        """The kernel as a function of an executable, of tensors of these types."""
        size, work = self._work()
        tensors, body, results = with_scratch(self.kernel, inputs, result, work, bool(self.workgroups))
        return function_of(size, tensors, self.launch, body, tokens=has_tokens(self.kernel), results=results)

    @property
    def block(self) -> type[Block]:
        return Block

    def _work(self) -> tuple[int | None, KernelBody]:
        """The number that a launch depends on, of rows or of a batch's products, and what each workgroup does."""
        kernel = self.kernel
        if self.workgroups:
            return kernel.m, lambda rows, buffers: stream_k.work(
                self, rows, buffers, lambda tensors, number: self.block(self, rows, tensors, number)
            )
        if kernel.batch is None:
            return kernel.m, lambda rows, buffers: self.block(self, rows, buffers).run()
        rows = kernel.m
        assert rows is not None
        return kernel.batch.size, lambda _, buffers: self.block(self, rows, buffers).run()


class Block:
    """One workgroup's work."""

    def __init__(self, gemm: MmaGemm, rows: e.Index, buffers: list[ir.Value], number: e.Index | None = None) -> None:
        """Of tile `number`, by default that of the workgroup."""
        self.gemm, self.kernel, self.tile, self.rows = gemm, gemm.kernel, gemm.tile, rows
        lhs, rhs, *operands, self.out = buffers
        picked = len(picks(self.kernel))
        self.buffers = dict(zip(self.kernel.operands, operands[picked:], strict=True))
        self._picks = dict(zip(picks(self.kernel), operands[:picked], strict=True))
        self.mma = gemm.mma
        self.thread = gpu.thread_id(self.tile.threads)
        self.batch, number = batch_of(self.kernel, self.tile, workgroup_id() if number is None else number)
        self._pick(lhs)
        block_m, block_n = place(self.kernel, self.tile, rows, number)
        self.m0, self.n0 = e.multiply(block_m, self.tile.m), e.multiply(block_n, self.tile.n)
        self._lanes()
        shapes, k = gemm.shapes, self.kernel.k
        # Of the packed weight as it is: other kernels that read it may ask for longer rows.
        rhs_length = ir.MemRefType(rhs.type).shape[-1] if gemm.constant else k
        common = (self.thread, self.tile.threads)
        few = rows if isinstance(rows, int) and rows < self.tile.m else None
        at_lhs, at_rhs = (self._address(axes) for axes in gemm.axes)
        window = self.kernel.lhs.window
        self.lhs: SharedTile[e.Index] | SharedTile[ImagePlace]
        if window is None:
            self.lhs = SharedTile(shapes[0], lhs, k, *common, self._lhs_row, at_lhs, few)
        else:
            # All columns of a tile are filters of one group.
            group = e.divide(self.n0, self.kernel.n // window.groups) if window.groups > 1 else 0
            image = Image(window, e.multiply(group, window.channels))
            self.lhs = SharedTile(
                shapes[0],
                lhs,
                k,
                *common,
                lambda row: image.row(self._lhs_row(row)),
                image.address,
                few,
                window.channels,
                image.there,
                self._padding(),
            )
        self.rhs = SharedTile(shapes[1], rhs, rhs_length, *common, self._rhs_row, at_rhs)

    def _lanes(self) -> None:
        """Where this lane's part of a fragment is."""
        lane, warp = e.remainder(self.thread, 32), e.divide(self.thread, 32)
        rows, columns = self.tile.warp
        self.lane = lane
        across, down = self.tile.warps[1], self.tile.warps[0]
        self.warp_row = e.multiply(e.remainder(e.divide(warp, across), down), rows)
        self.warp_column = e.multiply(e.remainder(warp, across), columns)
        self.k_warp = 0 if self.tile.warps[2] == 1 else e.divide(warp, across * down)
        self.m_fragments, self.n_fragments = rows // 16, columns // 8
        self.dealt = next(f for f in (4, 2, 1) if self.n_fragments % f == 0)
        self.tiled = TiledMma(self.mma.fragments, "b", self.mma.depth, dealt=self.dealt)
        self.run_length = len(self.tiled.held)
        n = self.kernel.n
        self.lanes = next(width for width in (8, 4, 2, 1) if width <= self.run_length and n % width == 0)
        self.epilogue = TensorEpilogue(self.kernel, self.lanes, self._fetch)
        self.wants_sums = uses_row_sums(self.kernel)
        self.decoder = Decoder(self)

    def _pick(self, lhs: ir.Value) -> None:
        """Which matrix this workgroup multiplies by, if its result is asked for, and how rows are picked, where the
        batch says so."""
        batch = self.kernel.batch
        self.matrix: e.Index = self.batch
        self.wanted: e.Condition = True
        self._row_of: ir.Value | None = None
        self._target: ir.Value | None = None
        if batch is None:
            return
        if batch.index is not None:
            number = _loaded(self._picks[batch.index], [self.batch])
            self.wanted = e.less(number, batch.matrices)
            self.matrix = e.minimum(number, batch.matrices - 1)
        if batch.rows is not None:
            kind = ir.MemRefType(lhs.type)
            self._row_of, self._lhs_rows = self._picks[batch.rows], None if kind.is_dynamic_dim(0) else kind.shape[0]
        if batch.target is not None:
            self._target = self._picks[batch.target]

    def _slot(self, m: e.Index) -> e.Index:
        """Which row of all a row of this product is."""
        assert self._row_of is not None
        return _loaded(self._row_of, [self.batch, m])

    def _picked(self, slot: e.Index) -> e.Index:
        """Which row of the activation that is."""
        assert self.kernel.batch is not None
        row = e.divide(slot, self.kernel.batch.repeats)
        return row if self._lhs_rows is None else e.minimum(row, self._lhs_rows - 1)

    def _address(self, axes: tuple[str, ...]) -> Callable[[e.Index, e.Index], list[e.Index]]:
        """From a row and a place along K to the place in a side."""
        first = {BATCH: self.batch, MATRIX: self.matrix}
        return lambda row, k: [first.get(a, k if a == "k" else row) for a in axes]

    def _lhs_row(self, row: e.Index) -> e.Index:
        """The row of the activation that a row of the tile holds: past the last one, the last one again."""
        m = e.add(self.m0, row)
        if not isinstance(self.rows, int) or self.rows % self.tile.m:
            m = e.minimum(m, e.subtract(self.rows, 1))
        return m if self._row_of is None else self._picked(self._slot(m))

    def _padding(self) -> int:
        """What stands for the code around an image in memory."""
        window = self.kernel.lhs.window
        assert window is not None
        return window.padding ^ (-0x80 if self.kernel.lhs.flipped else 0)

    def _rhs_row(self, row: e.Index) -> e.Index:
        """The column of the result whose weights a row of the tile holds."""
        size = 8 * self.dealt
        dealt = self.tiled.columns.place("column", index=e.remainder(row, size))
        n = e.add(self.n0, e.add(e.multiply(e.divide(row, size), size), dealt))
        return n if self.kernel.n % self.tile.n == 0 else e.minimum(n, self.kernel.n - 1)

    # ---- the product

    def run(self) -> None:
        e.guarded(self.wanted, self._product)

    def _product(self) -> None:
        state = self.accumulated(0, self.gemm.k_steps)
        e.guarded(e.equal(self.k_warp, 0), lambda: self.finish(state))

    def finish(self, state: Sequence[ir.Value]) -> None:
        """What is done with the sums over all steps, and the store; of the first warps along K."""
        if self.kernel.combine is None:
            self._epilogue(*self._parts(state))
        else:
            self._epilogue(self._regrouped(state), [])

    def accumulated(self, first: e.Index, last: e.Index) -> list[ir.Value]:
        """Sums over steps `first` to `last` of K, behind them those of rows; or totals of groups, as vectors."""
        per_step = self.gemm.tiles_per_step
        start = e.multiply(first, per_step)
        self.end = e.multiply(last, per_step)
        for stage in range(self.tile.stages - 1):
            number = e.add(start, stage)
            self._copies(number, stage, e.less(number, self.end))
        ring = [e.index(0), e.index(self.tile.stages - 1)]
        if self.kernel.combine is not None:
            return self._totals(self.kernel.combine, first, last, ring)
        state = self._zeros()
        read = self.decoder.load(first)
        with e.loop(first, last, 1, [*ring, *read, *state]) as k_tile:
            ring, values = k_tile.values[:2], k_tile.values[2:]
            self.decoder.held, state = values[: len(read)], values[len(read) :]
            # Asked for a tile ahead: what is read here is needed after the next wait.
            read = self.decoder.load(e.minimum(e.add(k_tile.index, 1), e.subtract(last, 1)))
            self._advance(k_tile.index, ring)
            state = self._tile(ring[0], state)
            k_tile.next = [*self._next(ring), *read, *state]
        return self._across_warps(k_tile.results[2 + len(read) :])

    def _totals(self, combine: Stage, first: e.Index, last: e.Index, ring: list[ir.Value]) -> list[ir.Value]:
        """Of the groups of some steps."""
        assert self.kernel.group is not None
        totals, per_group = self._zero_totals(), self.gemm.tiles_per_step
        if self.kernel.group >= self.tile.k:
            with e.loop(first, last, 1, [*ring, *totals]) as each:
                with e.loop(0, per_group, 1, [*each.values[:2], *self._zeros()]) as k_tile:
                    ring, state = k_tile.values[:2], k_tile.values[2:]
                    self._advance(e.add(e.multiply(each.index, per_group), k_tile.index), ring)
                    state = self._tile(ring[0], state)
                    k_tile.next = [*self._next(ring), *state]
                ring, state = k_tile.results[:2], k_tile.results[2:]
                each.next = [*ring, *self._combined(combine, state, each.values[2:], each.index)]
            return list(each.results[2:])
        inside, steps = self.tile.k // self.kernel.group, self.kernel.group // self.gemm.step
        rest = self.kernel.groups % inside  # groups of a last tile that has not all
        whole = e.subtract(last, int(rest > 0))
        with e.loop(first, whole, 1, [*ring, *totals]) as k_tile:
            ring, totals = k_tile.values[:2], k_tile.values[2:]
            self._advance(k_tile.index, ring)
            totals = self._groups(combine, ring[0], totals, k_tile.index, inside, steps)
            k_tile.next = [*self._next(ring), *totals]
        ring, totals = k_tile.results[:2], k_tile.results[2:]
        if rest:
            self._advance(whole, ring)
            totals = self._groups(combine, ring[0], totals, whole, rest, steps)
        return list(totals)

    def _tile(self, stage: e.Index, state: Sequence[ir.Value]) -> list[ir.Value]:
        """The state after this warp's steps of one tile."""
        return self._steps(stage, state, range(self._steps_per_warp))

    @property
    def _steps_per_warp(self) -> int:
        return self.tile.k // self.gemm.step // self.tile.warps[2]

    def _across_warps(self, state: Sequence[ir.Value]) -> list[ir.Value]:
        """The sums of all warps along K, in the first of them."""
        others = self.tile.warps[2] - 1
        if not others:
            return list(state)
        threads = self.tile.threads // (others + 1)
        memory = gpu.shared([others, len(state), threads], state[0].type)
        lane = e.remainder(self.thread, threads)

        def at(warp: e.Index, i: int) -> list[ir.Value]:
            return [e.index(warp), e.index(i), e.index(lane)]

        def give() -> None:
            for i, value in enumerate(state):
                memref.store(value, memory, at(e.subtract(self.k_warp, 1), i))

        e.guarded(e.less(0, self.k_warp), give)
        gpu.barrier()
        add = arith.addf if self.mma.acc == "f32" else arith.addi
        total = list(state)
        for warp in range(others):
            total = [add(value, memref.load(memory, at(warp, i))) for i, value in enumerate(total)]
        return total

    def _groups(
        self, combine: Stage, stage: e.Index, totals: Sequence[ir.Value], k_tile: e.Index, count: int, steps: int
    ) -> list[ir.Value]:
        for i in range(count):
            state = self._steps(stage, self._zeros(), range(i * steps, (i + 1) * steps))
            inside = self.tile.k // (self.kernel.group or 1)
            totals = self._combined(combine, state, totals, e.add(e.multiply(k_tile, inside), i))
        return list(totals)

    def _copies(self, k_tile: e.Index, stage: e.Index, wanted: e.Condition) -> None:
        self.lhs.copy(k_tile, stage, wanted)
        self.rhs.copy(k_tile, stage, wanted)
        gpu.commit()

    def _advance(self, k_tile: e.Index, ring: Sequence[ir.Value]) -> None:
        """Wait for tile `k_tile`; then the place of the one before it is free for the tile that is furthest ahead."""
        gpu.wait(self.tile.stages - 2)
        gpu.barrier()
        ahead = e.add(k_tile, self.tile.stages - 1)
        self._copies(ahead, ring[1], e.less(ahead, self.end))

    def _next(self, ring: Sequence[ir.Value]) -> list[ir.Value]:
        moved = [e.add(place, 1) for place in ring]
        return [e.index(e.choose(e.equal(place, self.tile.stages), 0, place)) for place in moved]

    def _zeros(self) -> list[ir.Value]:
        """Accumulators, fragment by fragment, and after them the row sums'."""
        count = self.m_fragments * (self.n_fragments + int(self.wants_sums))
        return [e.constant(0, self.kernel.acc_type)] * (4 * count)

    def _steps(self, stage: e.Index, state: Sequence[ir.Value], steps: Sequence[int]) -> list[ir.Value]:
        """The state after some steps of one tile."""
        state = list(state)
        acc = [state[i : i + 4] for i in range(0, len(state), 4)]
        rhs: dict[int, tuple[_Words, int]] = {}
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
                ones = [e.constant(_ONES, e.integer(32))] * (self.gemm.step // CHUNK)
                for i in range(self.m_fragments):
                    at = self.m_fragments * self.n_fragments + i
                    acc[at] = self.mma(lhs[i], ones, acc[at])
        return [value for fragment in acc for value in fragment]

    def _lhs_words(self, stage: e.Index, i: int, step: int) -> list[ir.Value]:
        """A fragment of 16 rows: words of rows r and r + 8, then of the same at the next chunk."""
        chunks = self.mma.step_bytes // CHUNK
        row = e.remainder(self.lane, 16)
        first = e.multiply(e.add(e.multiply(self.k_warp, self._steps_per_warp), step), chunks)
        chunk = e.add(e.divide(self.lane, 16), first) if chunks == 2 else first
        place = e.add(self.warp_row, e.add(row, 16 * i))
        words = self.lhs.words(stage, place, row, chunk, 2 * chunks)
        if self.kernel.lhs.flipped:
            flip = e.constant(_FLIP, e.integer(32))
            words = [arith.xori(word, flip) for word in words]
        return words

    def _rhs_words(self, stage: e.Index, step: int) -> dict[int, tuple[_Words, int]]:
        """The stored words of all fragments, for each step whose codes share the chunks of this one."""
        storage = self.gemm.storage
        fields, per_step = storage.fields, self.gemm.step // CHUNK
        if per_step >= fields:
            count, chunks, steps = per_step // fields, step * per_step // fields, [step]
        else:
            first = step * per_step // fields * fields // per_step
            count, chunks, steps = 1, first * per_step // fields, list(range(first, first + fields // per_step))
        first_chunk = e.add(e.multiply(self.k_warp, self._steps_per_warp * per_step // fields), chunks)
        pairs = [(j, c) for j in range(self.n_fragments) for c in range(count)]
        words: _Words = {}
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

    def _rhs_fragment(self, words: _Words, number: int, j: int, step: int) -> list[ir.Value]:
        """Fragment j at a step, the `number`th of those whose codes share the chunks that `words` are of; taken apart
        only now, as registers are few."""
        if self.kernel.rhs.decode is not None:
            return self.decoder.fragment(words[j, 0], number, j, step)
        storage, per_step = self.gemm.storage, self.gemm.step // CHUNK
        fields = range(number * per_step, (number + 1) * per_step)
        return self.mma.rhs([storage.field(words[j, f // storage.fields], f % storage.fields) for f in fields])

    # ---- from fragments to runs of neighbouring columns

    def _parts(self, state: Sequence[ir.Value]) -> tuple[list[list[ir.Value]], list[list[ir.Value]]]:
        """Sums of products as vectors, `[16 rows, half][run]`, and row sums `[16 rows][half]`."""
        fragments = [state[i : i + 4] for i in range(0, len(state), 4)]
        shift = self.gemm.storage.shift
        across = len(fragments) // self.m_fragments - int(self.wants_sums)
        rows = []
        for i in range(self.m_fragments):
            for half in range(2):
                runs = []
                for first in range(0, across, self.dealt):
                    at = i * across + first
                    values = [fragments[at + fragment][2 * half + v] for v, fragment in self.tiled.held]
                    for start in range(0, self.run_length, self.lanes):
                        run = e.gathered(values[start : start + self.lanes])
                        if shift:
                            run = arith.shrsi(run, e.splat(shift, self.lanes, e.integer(32)))
                        runs.append(run)
                rows.append(runs)
        sums = fragments[self.m_fragments * across :]
        return rows, [[self._unpadded(fragment[0]), self._unpadded(fragment[2])] for fragment in sums]

    def _unpadded(self, total: ir.Value) -> ir.Value:
        """A row's sum without what flipped zeros behind its end have added."""
        padding = self.gemm.padded_k - self.kernel.k
        if not self.kernel.lhs.flipped or not padding or self.kernel.group is not None:
            return total
        return arith.addi(total, e.constant(128 * padding, e.integer(32)))

    @property
    def _runs(self) -> int:
        """Vectors in a row of a warp."""
        return self.n_fragments * 2 // self.lanes

    def _zero_totals(self) -> list[ir.Value]:
        return [e.splat(0, self.lanes, self.kernel.value_type)] * (2 * self.m_fragments * self._runs)

    def _regrouped(self, totals: Sequence[ir.Value]) -> list[list[ir.Value]]:
        return [list(totals[i : i + self._runs]) for i in range(0, len(totals), self._runs)]

    def _combined(
        self, combine: Stage, state: Sequence[ir.Value], totals: Sequence[ir.Value], group: e.Index
    ) -> list[ir.Value]:
        """Totals with one more group's part."""
        parts, sums = self._parts(state)
        with self.epilogue.scope():
            self.epilogue.hold(combine.operands, group, range(self._runs))
            return self._added(combine, parts, sums, totals, group)

    def _added(
        self, combine: Stage, parts: Sequence[Sequence[ir.Value]], sums: list[list[ir.Value]],
        totals: Sequence[ir.Value], group: e.Index, first: int = 0, rows: Sequence[e.Index] | None = None,
    ) -> list[ir.Value]:  # fmt: skip
        """Totals of runs from `first` on with one more group's part. What is the same in a row is read when its turn
        comes, as registers are few, unless it is held already, of these `rows`."""
        made: list[ir.Value] = []
        for r, runs in enumerate(parts):
            m = rows[r] if rows else self._row(r)[0]
            self.epilogue.hold_row(combine.operands, group, m)
            sum_ = sums[r // 2][r % 2] if sums else None
            for v, part in enumerate(runs, first):
                made.append(self.epilogue.combine(totals[len(made)], part, sum_, group, m, v))
        return made

    # ---- bodies

    def _row(self, r: int) -> tuple[e.Index, e.Condition]:
        """The row of half `r`, one that is there, and whether it is itself there."""
        inside = e.add(self.tiled.result.place("row", lane=self.lane), 16 * (r // 2) + 8 * (r % 2))
        m = e.add(self.m0, e.add(self.warp_row, inside))
        if isinstance(self.rows, int) and self.rows % self.tile.m == 0:
            return m, True
        return e.minimum(m, e.subtract(self.rows, 1)), e.less(m, self.rows)

    def _column(self, v: int) -> tuple[e.Index, e.Condition]:
        """The first column of run `v` of this lane, one that is there, and whether it is itself there."""
        per_run = self.run_length // self.lanes
        first = self.tiled.result.place("column", lane=self.lane)
        inside = e.add(first, v // per_run * self.tiled.result.extent("column"))
        n = e.add(self.n0, e.add(self.warp_column, e.add(inside, v % per_run * self.lanes)))
        if self.kernel.n % self.tile.n == 0:
            return n, True
        return e.minimum(n, self.kernel.n - self.lanes), e.less(n, self.kernel.n)

    def _epilogue(self, values: list[list[ir.Value]], sums: list[list[ir.Value]]) -> None:
        """The stages on each vector, and the store."""
        operands = [o for stage in self.kernel.stages for o in stage.operands]
        self.epilogue.hold(operands, 0, range(self._runs))
        for r, runs in enumerate(values):
            m, inside = self._row(r)
            target: e.Index = m
            if self._target is not None:
                target = _loaded(self._target, [self.batch, m])
                inside = e.both(inside, e.less(target, _NO_ROW))
            sum_ = sums[r // 2][r % 2] if sums else None
            with e.when(inside), self.epilogue.scope():
                self.epilogue.hold_row(operands, 0, m)
                for v, run in enumerate(runs):
                    self._store(self.epilogue.finish(run, sum_, m, v), target, v)

    def _store(self, value: ir.Value, m: e.Index, v: int) -> None:
        n, inside = self._column(v)
        if self.kernel.planes:
            e.guarded(inside, lambda: self._store_planes(value, m, n))
            return
        row = [m] if self.kernel.batch is None or self._target is not None else [self.batch, m]
        where = [e.index(i) for i in (*row, n)]
        bytes_ = self.lanes * e.bits(self.kernel.result_type) // 8
        e.guarded(inside, lambda: _drop(vector.StoreOp(value, self.out, where, alignment=bytes_)))

    def _store_planes(self, value: ir.Value, m: e.Index, n: e.Index) -> None:
        """One by one, as neighbours of a channel are rows: those of the lanes beside this one."""
        window = self.kernel.lhs.window
        assert window is not None
        pixels = window.result[0] * window.result[1]
        image, pixel = e.divide(m, pixels), e.remainder(m, pixels)
        for i in range(self.lanes):
            memref.store(e.lane(value, i), self.out, [e.index(x) for x in (image, e.add(n, i), pixel)])

    def _fetch(self, operand: Operand, group: e.Index, m: e.Index, run: e.Index) -> ir.Value:
        """An operand at a run of row `m`."""
        places = {BATCH: self.batch, MATRIX: self.matrix, GROUP: group, ROW: m}
        if COLUMN in operand.axes:
            assert isinstance(run, int)
            places[COLUMN] = self._column(run)[0]
        if SLOT in operand.axes or TOKEN in operand.axes:
            places[SLOT] = self._slot(m)
            places[TOKEN] = self._picked(places[SLOT])
        return fetch(operand, self.buffers[operand], places, self.lanes)


def _loaded(buffer: ir.Value, where: Sequence[e.Index]) -> ir.Value:
    """An i32 that is no negative number, as an index; a negative one becomes a large one."""
    word = memref.load(buffer, [e.index(i) for i in where])
    return arith.index_castui(ir.IndexType.get(), word)


def _drop(_: object) -> None:
    """A statement where an expression is wanted."""
