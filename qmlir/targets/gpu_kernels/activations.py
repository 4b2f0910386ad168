"""Activations in their stored layout, read by rows of a matrix `[M, K]` in pieces along K."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ...core.mlir import arith, ir
from ...kernels.description import Kernel, Window
from ...kernels.small_floats import FORMATS
from . import bf16, emit as e
from .batch import Products
from .executable import RuntimeSize, View
from .loop import ReadPiece
from .machine import Machine
from .small_floats import doubled_e2m1, of_word
from .window import Image, ImagePlace

_SIGNS = 0x80808080


@dataclass(frozen=True)
class Rows:
    """Rows, read as 32-bit words; the `depth` elements of a piece fill whole words. Elements past the end of a row are
    read as zeros.

    `flipped`: the top bits of codes are inverted in memory. `e2m1`: codes of that format, read as twice their value.
    `span`: the elements of K up to which pieces are read; 0: up to the piece with the end of the row.
    """

    rows: int | RuntimeSize | None
    k: int
    depth: int
    element: ir.Type  # of 8, 16 or 32 bits
    flipped: bool = False
    span: int = 0
    e2m1: bool = False

    @property
    def per_word(self) -> int:
        """Elements of a word."""
        return 32 // int(self.element.width)

    @property
    def words(self) -> int:
        """Words of one load: 4, 2 or 1; 0 if rows do not start at words, so that elements are loaded one by one."""
        per = self.per_word
        return next((w for w in (4, 2, 1) if self.k % (per * w) == 0 and self.depth % (per * w) == 0), 0)

    @property
    def view(self) -> View:
        if self.words == 0:
            return View((self.rows, self.k), self.element)
        return View.of_words((self.rows, self.k // (self.per_word * self.words)), self.words)

    def row(self, m: e.Index) -> ReadPiece:
        """See `loop.Source`."""
        return partial(self.load, m)

    def load(self, row: e.Index, memory: ir.Value, piece: e.Index) -> list[ir.Value]:
        """The words of a piece."""
        if self.words == 0:
            first = e.multiply(piece, self.depth)
            words = self.depth // self.per_word
            return [self._joined(memory, row, e.add(first, i * self.per_word)) for i in range(words)]
        per = self.depth // (self.per_word * self.words)
        first = e.multiply(piece, per)
        return [word for i in range(per) for word in self._words(memory, row, e.add(first, i))]

    def _words(self, memory: ir.Value, row: e.Index, at: e.Index) -> list[ir.Value]:
        count = self.k // (self.per_word * self.words)
        ragged = self.k % self.depth != 0 or self.span > self.k
        words = e.elements(e.load(memory, [row, e.minimum(at, count - 1) if ragged else at]))
        if self.flipped:
            words = [arith.xori(w, e.word(_SIGNS)) for w in words]
        if self.e2m1:
            words = [doubled_e2m1(w) for w in words]
        if ragged:
            inside = arith.cmpi(arith.CmpIPredicate.ult, e.index(at), e.index(count))
            words = [arith.select(inside, w, e.word(0)) for w in words]
        return words

    def _joined(self, memory: ir.Value, row: e.Index, first: e.Index) -> ir.Value:
        """A word of elements that are loaded one by one."""
        values = []
        for i in range(self.per_word):
            at = e.add(first, i)
            value = _bits(e.load(memory, [row, e.minimum(at, self.k - 1)]))
            if self.flipped:
                value = arith.xori(value, e.word(0x80))
            inside = arith.cmpi(arith.CmpIPredicate.ult, e.index(at), e.index(self.k))
            values.append(arith.select(inside, value, e.word(0)))
        return doubled_e2m1(_word(values)) if self.e2m1 else _word(values)


def _bits(value: ir.Value) -> ir.Value:
    """Zero-extend the bits of an element to a word."""
    if isinstance(value.type, ir.FloatType):
        value = arith.bitcast(e.integer(int(value.type.width)), value)
    return value if value.type.width == 32 else arith.extui(e.integer(32), value)


def _word(values: list[ir.Value]) -> ir.Value:
    """Concatenate the low bits of several words to one word, the first lowest."""
    bits = 32 // len(values)
    total = values[0]
    for i, value in enumerate(values[1:], 1):
        total = arith.ori(total, arith.shli(value, e.word(bits * i)))
    return total


@dataclass(frozen=True)
class WindowRows:
    """Rows of a convolution, read from its image `[N, H * W * C]` or `[N, C * H * W]`. A piece is of one pixel: `depth`
    divides C, or the channels of a group, whose number is the third coordinate of the workgroup."""

    window: Window
    k: int
    depth: int
    flipped: bool
    element: ir.Type  # of 8, 16 or 32 bits

    @property
    def per_word(self) -> int:
        """Elements of a word."""
        return 32 // int(self.element.width)

    @property
    def words(self) -> int:
        """Words of one load; 0 if elements are loaded one by one."""
        return 0 if self.window.planes else next(w for w in (4, 2, 1) if self.depth % (self.per_word * w) == 0)

    @property
    def view(self) -> View:
        images, height, width, channels = self.window.image
        elements = height * width * channels
        if self.words == 0:
            return View((images, elements), self.element)
        return View.of_words((images, elements // (self.per_word * self.words)), self.words)

    @property
    def _unit(self) -> int:
        """Elements of one load."""
        return max(1, self.per_word * self.words)

    @property
    def _image(self) -> Image:
        """The image, with channels counted in loads."""
        images, height, width, channels = self.window.image
        window = replace(self.window, image=(images, height, width, channels // self._unit))
        return Image(window, e.multiply(e.block(2), window.channels) if window.groups > 1 else 0, counted=False)

    def row(self, m: e.Index) -> ReadPiece:
        """See `loop.Source`."""
        return partial(self._load, self._image.row(m))

    def _load(self, row: ImagePlace, memory: ir.Value, piece: e.Index) -> list[ir.Value]:
        """The words of a piece."""
        count, image, loads = self.k // self.depth, self._image, self.depth // self._unit
        first = e.multiply(e.minimum(piece, count - 1), loads)
        there = image.there(row, first)
        found = [e.load(memory, image.address(row, first, i)) for i in range(loads)]
        if self.words == 0:
            found = [_bits(value) for value in found]
            words = [_word(found[i : i + self.per_word]) for i in range(0, self.depth, self.per_word)]
        else:
            words = [word for value in found for word in e.elements(value)]
        if self.flipped:
            words = [arith.xori(w, e.word(_SIGNS)) for w in words]
        if there is not True:
            code = e.word((self.window.padding & 0xFF) * 0x01010101)
            words = [arith.select(e.condition(there), w, code) for w in words]
        whole = e.less(piece, count)
        return words if whole is True else [arith.select(e.condition(whole), w, e.word(0)) for w in words]


@dataclass(frozen=True)
class Columns:
    """Columns of matrices `[matrices, K, N]` of bytes; four neighbours are read together and transposed in registers.
    Past the end of a column its last code is read: the other operand is zero there."""

    matrices: int
    n: int
    k: int
    depth: int
    flipped: bool

    @property
    def view(self) -> View:
        rows = self.matrices * self.k
        return View((rows, self.n), e.integer(8)) if self.n % 4 else View((rows, self.n // 4), e.integer(32))

    def load(self, memory: ir.Value, matrix: e.Index, column: e.Index, piece: e.Index) -> list[list[ir.Value]]:
        """The words of a piece, for each of the four columns from `column` on."""
        first = e.multiply(piece, self.depth)
        columns: list[list[ir.Value]] = [[] for _ in range(4)]
        for word in range(0, self.depth, 4):
            rows = [self._row(memory, matrix, column, e.add(first, word + i)) for i in range(4)]
            for c, words in enumerate(columns):
                words.append(_word([_byte(row, c) for row in rows]))
        return columns

    def _row(self, memory: ir.Value, matrix: e.Index, column: e.Index, k: e.Index) -> ir.Value:
        """The codes of the four columns at row `k`, as a word."""
        row = e.add(e.multiply(matrix, self.k), e.minimum(k, self.k - 1) if self.k % self.depth else k)
        if self.n % 4 == 0:
            found = e.load(memory, [row, e.divide(column, 4)])
        else:
            columns = [e.minimum(e.add(column, i), self.n - 1) for i in range(4)]
            found = _word([_bits(e.load(memory, [row, c])) for c in columns])
        return arith.xori(found, e.word(_SIGNS)) if self.flipped else found


def _byte(word: ir.Value, number: int) -> ir.Value:
    """Byte `number` of a word, zero-extended."""
    return arith.andi(e.shifted(word, -8 * number), e.word(0xFF))


@dataclass(frozen=True)
class Numbers:
    """Rows of floats of the type `kind`, read as f32."""

    rows: Rows | WindowRows
    kind: ir.Type

    @property
    def view(self) -> View:
        return self.rows.view

    def row(self, m: e.Index) -> ReadPiece:
        """See `loop.Source`."""
        return partial(self._load, self.rows.row(m))

    def _load(self, read: ReadPiece, memory: ir.Value, piece: e.Index) -> list[ir.Value]:
        """The elements of a piece, as f32."""
        return [x for word in read(memory, piece) for x in self._numbers(word)]

    def _numbers(self, word: ir.Value) -> list[ir.Value]:
        f32 = ir.F32Type.get()
        if str(self.kind) in FORMATS:
            return e.elements(of_word(word, str(self.kind)))
        if isinstance(self.kind, ir.F32Type):
            return [arith.bitcast(f32, word)]
        if isinstance(self.kind, ir.BF16Type):  # the upper half of an f32
            halves = arith.shli(word, e.word(16)), arith.andi(word, e.word(0xFFFF0000))
            return [arith.bitcast(f32, bits) for bits in halves]
        return e.elements(arith.extf(e.vector_of(2, f32), e.as_pair(word, e.vector_of(2, self.kind))))


def rows_of(kernel: Kernel, depth: int, span: int = 0) -> Rows | WindowRows:
    """The activation of a kernel in its stored layout; see `Rows`."""
    element = ir.RankedTensorType(kernel.lhs.value.type).element_type
    if str(element) in FORMATS:
        element = e.integer(8)
    if kernel.lhs.window is not None:
        return WindowRows(kernel.lhs.window, kernel.k, depth, kernel.lhs.flipped, element)
    return Rows(Products(kernel).activation_rows, kernel.k, depth, element, kernel.lhs.flipped, span, kernel.lhs.e2m1)


def numbers_of(kernel: Kernel, depth: int, machine: Machine) -> Numbers:
    """The activation of a float kernel, read as f32."""
    rows = rows_of(kernel, depth)
    rows = replace(rows, element=bf16.stored_type(rows.element, machine))
    return Numbers(rows, ir.RankedTensorType(kernel.lhs.value.type).element_type)
