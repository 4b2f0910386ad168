"""Products whose operands pass through shared memory: the copies of each thread, the layout there, and the loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...core.mlir import ir
from ...kernels.description import Kernel
from . import emit as e
from .loop import ReadPiece, Source, TileLoop, Values, Workgroup
from .machine import Machine

LOAD = 16  # bytes of the widest load


@dataclass(frozen=True)
class Copies:
    """Copies of `rows` rows of `per_row` pieces each by `threads` threads.

    `down`: neighbouring rows, not neighbouring pieces, are next to each other in memory; neighbouring threads then copy
    neighbouring rows.
    """

    thread: ir.Value
    threads: int
    rows: int
    per_row: int
    down: bool = False

    @property
    def count(self) -> int:
        """Copies per thread."""
        return -(-self.rows * self.per_row // self.threads)

    def at(self, number: int) -> tuple[e.Index, e.Index, ir.Value | bool]:
        """The row and the piece of a copy of this thread, and whether the copy exists."""
        at, count = e.add(self.thread, number * self.threads), self.rows * self.per_row
        ours = True if count % self.threads == 0 else e.less(at, count)
        if self.down:
            return e.remainder(at, self.rows), e.divide(at, self.rows), ours
        row = e.divide(at, self.per_row)
        return (row if ours is True else e.minimum(row, self.rows - 1)), e.remainder(at, self.per_row), ours


class SharedRows:
    """Rows of an operand in shared memory, in one or two halves. An element has `unit` words; 16 bytes of padding after
    each row of `row_bytes` prevent bank conflicts between rows."""

    def __init__(self, rows: int, row_bytes: int, unit: int, halves: int = 1) -> None:
        self.unit, self._halved = unit, halves > 1
        shape = shared_shape(rows, row_bytes, unit)
        self.stride = shape[1]  # elements of a row
        i32 = e.integer(32)
        self.memory: ir.Value = e.shared(
            (halves, *shape) if self._halved else shape, i32 if unit == 1 else e.vector_of(unit, i32)
        )

    def write(self, words: list[ir.Value], half: e.Index, row: e.Index, piece: e.Index) -> None:
        """Store the words of a piece of a row; all pieces have the same length."""
        for i in range(0, len(words), self.unit):
            value = words[i] if self.unit == 1 else e.gathered(words[i : i + self.unit])
            where = e.add(e.multiply(piece, len(words) // self.unit), i // self.unit)
            e.store(value, self.memory, self._where(half, row, where))

    def read(self, half: e.Index, row: e.Index, element: e.Index) -> list[ir.Value]:
        """The words of an element."""
        return e.elements(e.load(self.memory, self._where(half, row, element)))

    def _where(self, half: e.Index, row: e.Index, element: e.Index) -> list[e.Index]:
        return [half, row, element] if self._halved else [row, element]


def shared_shape(rows: int, row_bytes: int, unit: int) -> tuple[int, int]:
    """The numbers of rows and of elements in a row; see `SharedRows`."""
    return rows, (row_bytes + LOAD) // (4 * unit)


@dataclass(frozen=True)
class Fetched:
    """The part of a step that a thread has loaded of one operand: `store` writes it to the given half of shared memory;
    `held` are values that stay in registers, carried by the loop."""

    store: Callable[[e.Index], None] = lambda half: None
    held: Values = field(default_factory=list)


class StagedLoop(TileLoop):
    """A loop that loads each step from memory while the step before is multiplied. With two `halves` of shared memory,
    the next step is written to one while the other is read, and one barrier per step is enough.

    Attributes:
        copies: the copies of the activation's rows, from row `first_row` of the product on, to `shared`.
    """

    halves: int = 1
    copies: Copies
    shared: SharedRows
    first_row: e.Index

    def __init__(self, kernel: Kernel, machine: Machine, source: Source, workgroup: Workgroup, steps: int) -> None:
        super().__init__(kernel, machine, workgroup.place, workgroup.epilogue, steps)
        self.source, self.workgroup = source, workgroup
        self._rows: list[ReadPiece] = []  # loads of the rows that this thread copies
        self._last: e.Index = 0

    @abstractmethod
    def fetch(self, step: e.Index) -> list[Fetched]:
        """Load this thread's part of a step."""

    @abstractmethod
    def multiply(self, step: e.Index, half: e.Index, totals: Values, held: Values) -> Values:
        """The accumulators after the step that is in shared memory and in `held`."""

    def barrier(self) -> None:
        """Wait for the workgroup's writes to shared memory."""
        e.barrier()

    def start(self, first: e.Index, last: e.Index) -> Values:
        for i in range(self.copies.count):
            row, _, _ = self.copies.at(i)
            token = self.place.token(self.place.inside(e.add(self.first_row, row)))
            self._rows.append(self.source.row(token))
        self._last = e.subtract(last, 1)
        return self._store_fetched(self.fetch(first), e.remainder(first, self.halves))

    def step(self, step: e.Index, totals: Values, held: Values) -> tuple[Values, Values]:
        fetched = self.fetch(e.minimum(e.add(step, 1), self._last))
        half = e.remainder(step, self.halves)
        totals = self.multiply(step, half, totals, held)
        if self.halves == 1:  # wait until all threads have read the step that is overwritten
            self.barrier()
        return totals, self._store_fetched(fetched, e.subtract(self.halves - 1, half))

    def activations(self, step: e.Index) -> Fetched:
        """Load the words of the activation that this thread copies of a step."""
        found = []
        for i, read in enumerate(self._rows):
            _, at, _ = self.copies.at(i)
            piece = e.add(e.multiply(step, self.copies.per_row), at)
            found.append(read(self.workgroup.lhs, piece))

        def store(half: e.Index) -> None:
            for i, words in enumerate(found):
                row, at, ours = self.copies.at(i)
                with e.when(ours):
                    self.shared.write(words, half, row, at)

        return Fetched(store)

    def _store_fetched(self, fetched: Sequence[Fetched], half: e.Index) -> Values:
        for side in fetched:
            side.store(half)
        self.barrier()
        return [value for side in fetched for value in side.held]
