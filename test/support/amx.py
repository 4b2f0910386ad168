"""Intel's AMX tiles emulated in software, to run the AMX kernels on a host without AMX.

When a kernel is emitted, its AMX instructions are replaced by code with the effect that Intel's manual specifies (SDM,
volume 2: LDTILECFG, TILEZERO, TILELOADD, TDPBSSD, TDPBF16PS, TDPFP16PS, TILESTORED). Packing, loops, tails, sums and
epilogues are the kernel's own. A product whose tile shapes the manual does not allow gives values that no test expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from qmlir.core.mlir import arith, ir, vector
from qmlir.kernels.emit import both, equal
from qmlir.targets.cpu.host import host_features
from qmlir.targets.cpu.kernels import emit as e, float_micro, integer_micro, plain
from qmlir.targets.cpu.kernels.forecast import OPERATIONS

NAME, BF16, FP16 = "amx-int8-emulated", "amx-bf16-emulated", "amx-fp16-emulated"
PLAIN = "amx-bf16-plain-emulated"
_ROWS, _BYTES = 16, 64  # of a tile
_TILES = 8
_REFUSED = 0x5A5A5A5A


class _Emulated:
    """Emulates the instructions from the one that sets up the tiles to the one that releases them."""

    def permit(self) -> None:
        """Nothing to ask for: the tiles are memory."""

    def begin(self, rows: int) -> None:
        e.intrinsic.on = True
        super().begin(rows)  # type: ignore[misc]

    def end(self) -> None:
        super().end()  # type: ignore[misc]
        e.intrinsic.on = False


class EmulatedAmx(_Emulated, integer_micro.Amx):
    """`Amx` for any AVX-512 host."""

    name = NAME
    features = integer_micro.AVX512_VNNI.features


@dataclass(frozen=True)
class EmulatedAmxHalf(_Emulated, float_micro.AmxHalf):
    """`amx-bf16` for a host that has `vdpbf16ps`, or `amx-fp16` for any AVX-512 host."""


def _half(kernel: float_micro.AmxHalf, name: str, stands_in: float_micro.FloatMicro) -> EmulatedAmxHalf:
    return EmulatedAmxHalf(name, stands_in.features, element=kernel.element, instruction=kernel.instruction)


@dataclass(frozen=True)
class EmulatedPlainTiles(_Emulated, plain.PlainTiles):
    """`amx-bf16-plain` for a host that has `vdpbf16ps`."""

    name: str = PLAIN
    features: tuple[frozenset[str], ...] = float_micro.AVX512_BF16.features


_INTEGER = (*integer_micro.INTEGER_KERNELS, EmulatedAmx())
_FLOAT = (
    *float_micro.FLOAT_KERNELS,
    _half(float_micro.AMX_BF16, BF16, float_micro.AVX512_BF16),
    _half(float_micro.AMX_FP16, FP16, float_micro.AVX512_FMA),
)


def _runnable(*kernels: Any) -> list[str]:
    return [k.name for k in kernels if any(needed <= host_features() for needed in k.features)]


# The kernels that run on this host, best first, including the emulated AMX kernels.
INTEGER = _runnable(*_INTEGER)
FLOAT = _runnable(*_FLOAT)
BF16_PLAIN = _runnable(*(k for k in plain.X86_KERNELS if isinstance(k, float_micro.Half)), EmulatedPlainTiles())


@contextmanager
def emulated() -> Iterator[None]:
    """Inside, `qmlir-select{prefer=amx-int8-emulated}` and the like choose the emulated AMX kernels."""
    with (
        mock.patch.object(integer_micro, "INTEGER_KERNELS", _INTEGER),
        mock.patch.object(float_micro, "FLOAT_KERNELS", _FLOAT),
        mock.patch.object(plain, "X86_KERNELS", (*plain.X86_KERNELS, EmulatedPlainTiles())),
        mock.patch.dict(OPERATIONS, {n: OPERATIONS[n.removesuffix("-emulated")] for n in (NAME, BF16, FP16, PLAIN)}),
        mock.patch.object(e, "intrinsic", _Emulator(e.intrinsic)),
    ):
        yield


class _Emulator:
    """Replaces `emit.intrinsic`. The tiles are those of the last configuration, because kernels emit it in front of the
    instructions that use them."""

    on = False  # if False, the instructions are emitted unchanged

    def __init__(self, intrinsic: Any) -> None:
        self._intrinsic = intrinsic
        self._config = self._tiles = None
        self._instructions = {
            "llvm.x86.ldtilecfg": self._configure,
            "llvm.x86.tilezero": self._zero,
            "llvm.x86.tileloadd64": self._load,
            "llvm.x86.tilestored64": self._store,
            "llvm.x86.tdpbssd": partial(self._multiply, self._bytes, "i32"),
            "llvm.x86.tdpbf16ps": partial(self._multiply, self._bf16, "f32"),
            "llvm.x86.tdpfp16ps": partial(self._multiply, self._fp16, "f32"),
        }

    def __call__(self, name: str, arguments: Any, result: Any = None) -> Any:
        if self.on and name == "llvm.x86.tilerelease":
            self._config = self._tiles = None
            return None
        if not self.on or name not in self._instructions:
            return self._intrinsic(name, arguments, result)
        return self._instructions[name](*arguments)

    def _configure(self, area: Any) -> None:
        if self._config is None:  # allocate only once: the configuration for the last rows is emitted in a branch
            self._config = e.pointer(e.scratch([64], e.integer(8)))
            self._tiles = e.pointer(e.scratch([_TILES * _ROWS * _BYTES], e.integer(8)))
        e.store(e.load(e.vector_of(64, e.integer(8)), area), self._config)
        for tile in range(_TILES):
            self._clear(tile)

    def _row(self, tile: int, row: e.Index) -> Any:
        return e.at(self._tiles, e.add(e.multiply(row, _BYTES), tile * _ROWS * _BYTES))

    def _height(self, tile: int) -> Any:
        return arith.index_castui(ir.IndexType.get(), e.load(e.integer(8), e.at(self._config, 48 + tile)))

    def _width(self, tile: int) -> Any:
        return arith.index_castui(ir.IndexType.get(), e.load(e.integer(16), e.at(self._config, 16 + 2 * tile)))

    def _clear(self, tile: int) -> None:
        for row in range(_ROWS):
            e.store(e.splat(0, _BYTES, e.integer(8)), self._row(tile, row))

    def _zero(self, tile: Any) -> None:
        self._clear(_number(tile))

    def _load(self, tile: Any, address: Any, stride: Any) -> None:
        number = _number(tile)
        self._clear(number)
        with e.loop(0, self._height(number)) as row:
            line = e.load(e.vector_of(_BYTES, e.integer(8)), e.at(address, e.multiply(row.index, _number(stride))))
            e.store(line, self._row(number, row.index))

    def _store(self, tile: Any, address: Any, stride: Any) -> None:
        number = _number(tile)
        with e.loop(0, self._height(number)) as row:
            line = e.load(e.vector_of(_BYTES, e.integer(8)), self._row(number, row.index))
            e.store(line, e.at(address, e.multiply(row.index, _number(stride))))

    def _multiply(self, dot: Any, element: str, acc: Any, lhs: Any, rhs: Any) -> None:
        d, a, b = (_number(tile) for tile in (acc, lhs, rhs))
        i32 = e.integer(32)
        words = e.vector_of(16, i32)
        sums = e.vector_of(16, ir.Type.parse(element))
        fits = equal(self._height(d), self._height(a))
        fits = both(fits, equal(e.multiply(self._height(b), 4), self._width(a)))
        for tile in (d, a, b):
            fits = both(fits, equal(self._width(tile), _BYTES))
        wrong = e.broadcast(arith.select(fits, arith.constant(i32, 0), arith.constant(i32, _REFUSED)), 16)
        with e.loop(0, self._height(d)) as m:
            total = vector.bitcast(sums, arith.xori(e.load(words, self._row(d, m.index)), wrong))
            with e.loop(0, e.divide(self._width(a), 4), 1, [total]) as k:
                four = e.load(i32, e.at(self._row(a, m.index), e.multiply(k.index, 4)))
                k.next = [dot(k.values[0], four, e.load(words, self._row(b, k.index)))]
            e.store(k.results[0], self._row(d, m.index))

    def _bytes(self, total: Any, four: Any, line: Any) -> Any:
        """Add the products of four signed bytes of one row with those of 16 columns."""
        for byte in range(4):
            total = arith.addi(total, arith.muli(e.broadcast(_signed(four, byte), 16), _signed(line, byte)))
        return total

    def _bf16(self, total: Any, two: Any, line: Any) -> Any:
        """Add the products of two bf16 values of one row with those of 16 columns."""
        pairs = e.vector_of(32, ir.BF16Type.get())
        operands = [total, vector.bitcast(pairs, e.broadcast(two, 16)), vector.bitcast(pairs, line)]
        return self._intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", operands, total.type)

    def _fp16(self, total: Any, two: Any, line: Any) -> Any:
        """Add the products of two f16 values of one row with those of 16 columns."""
        row = e.broadcast(two, 16)
        for number in range(2):
            total = arith.addf(total, arith.mulf(_float_of_half(row, number), _float_of_half(line, number)))
        return total


def _float_of_half(words: Any, number: int) -> Any:
    """Return one f16 value of each word, as f32."""
    halves = vector.bitcast(e.vector_of(32, ir.F16Type.get()), words)
    half = vector.shuffle(halves, halves, list(range(number, 32, 2)))
    return arith.extf(e.vector_of(16, ir.F32Type.get()), half)


def _signed(words: Any, byte: int) -> Any:
    """Return one byte of each word, sign-extended."""

    def shift(count: int) -> Any:
        return e.splat(count, 16, e.integer(32)) if "vector" in str(words.type) else arith.constant(words.type, count)

    return arith.shrsi(arith.shli(words, shift(24 - 8 * byte)), shift(24))


def _number(value: Any) -> int:
    """Return the value of an immediate operand."""
    return int(value.owner.attributes["value"].value)
