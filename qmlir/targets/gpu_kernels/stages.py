"""How the sides of a product come to shared memory: which thread copies what, and where it lies there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.mlir import ir
from . import emit as e
from .loop import Fetched, Workgroup

LOAD = 16  # bytes of the widest load


@dataclass(frozen=True)
class Copies:
    """The pieces of `rows` rows, `per_row` of each, that `threads` threads copy.

    `down`: neighbours in memory are those of neighbouring rows, which neighbouring threads then copy.
    """

    thread: ir.Value
    threads: int
    rows: int
    per_row: int
    down: bool = False

    @property
    def count(self) -> int:
        """Of one thread."""
        return -(-self.rows * self.per_row // self.threads)

    def at(self, number: int) -> tuple[e.Index, e.Index, ir.Value | bool]:
        """Of a thread's copy: its row, its piece of the row, and whether it is one."""
        at, count = e.add(self.thread, number * self.threads), self.rows * self.per_row
        ours = True if count % self.threads == 0 else e.less(at, count)
        if self.down:
            return e.remainder(at, self.rows), e.divide(at, self.rows), ours
        row = e.divide(at, self.per_row)
        return (row if ours is True else e.minimum(row, self.rows - 1)), e.remainder(at, self.per_row), ours


class SharedRows:
    """Rows of a side in shared memory, in one half or two. Elements are of `unit` words; 16 bytes behind each row of
    `row_bytes` keep rows off each other's banks."""

    def __init__(self, rows: int, row_bytes: int, unit: int, halves: int = 1) -> None:
        self.unit, self._halved = unit, halves > 1
        shape = shared_shape(rows, row_bytes, unit)
        self.stride = shape[1]  # elements of a row
        i32 = e.integer(32)
        self.memory: ir.Value = e.shared(
            (halves, *shape) if self._halved else shape, i32 if unit == 1 else e.vector_of(unit, i32)
        )

    def write(self, words: list[ir.Value], half: e.Index, row: e.Index, piece: e.Index) -> None:
        """The words of a piece of a row; all its pieces are as long."""
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
    """Rows, and elements of a row; see `SharedRows`."""
    return rows, (row_bytes + LOAD) // (4 * unit)


class RowStage:
    """The activation on its way to shared memory: copies of the workgroup's rows, the first of which is `first_row` of
    its product."""

    def __init__(self, copies: Copies, workgroup: Workgroup, shared: SharedRows, first_row: e.Index) -> None:
        self.copies, self.workgroup, self.shared, self.first_row = copies, workgroup, shared, first_row
        self.tokens: list[Any] = []

    def start(self) -> None:
        """Find out which rows of the activation this thread copies."""
        place = self.workgroup.place
        for i in range(self.copies.count):
            row, _, _ = self.copies.at(i)
            token = place.token(place.inside(e.add(self.first_row, row)))
            self.tokens.append(self.workgroup.activations.row(token))

    def fetch(self, step: e.Index) -> Fetched:
        """The words that this thread copies of a step."""
        found, load, source = [], self.workgroup.activations.load, self.workgroup.lhs
        for i, token in enumerate(self.tokens):
            _, at, _ = self.copies.at(i)
            found.append(load(source, token, e.add(e.multiply(step, self.copies.per_row), at)))

        def store(half: e.Index) -> None:
            for i, words in enumerate(found):
                row, at, ours = self.copies.at(i)
                with e.when(ours):
                    self.shared.write(words, half, row, at)

        return Fetched(store)
