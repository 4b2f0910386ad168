"""Intel's tile registers: 16 rows of 64 bytes each (Intel SDM, volume 1, chapter 18).

A register tile of up to 32 rows by 32 columns is four accumulators: tiles 0 and 1 are the first 16 rows, 2 and 3 the
rest. Tiles 4 and 5 hold the activations of these rows, 6 and 7 the weights of 16 columns each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....core.mlir import arith, llvm
from . import emit as e

if TYPE_CHECKING:
    from ....core.mlir import ir

ROWS = 32  # of a register tile
ROW_BYTES = 128  # of a row of its 32-bit sums


_HEIGHTS_AT = 48  # offset in a configuration: a byte for each tile


def begin(rows: int) -> ir.Value:
    """Emit the configuration of the registers for tiles of `rows` rows; return its address."""
    heights = [min(rows, 16)] * 2 + [max(rows - 16, 1)] * 2 + [min(rows, 16), max(rows - 16, 1), 16, 16]
    config = bytearray(64)
    config[0] = 1  # palette
    for tile, height in enumerate(heights):
        config[16 + 2 * tile] = 64  # bytes of a row
        config[_HEIGHTS_AT + tile] = height
    area = e.pointer(e.scratch([64], e.integer(8)))
    e.store(e.bytes_constant(list(config)), area)
    e.intrinsic("llvm.x86.ldtilecfg", [area])
    return area


@contextmanager
def with_rows(area: ir.Value, present: e.Index, rows: int) -> Iterator[None]:
    """Configure the registers, inside the context, for the `present` rows of a register tile of `rows`. If these are
    fewer, the contents of the registers are lost."""
    fewer = arith.cmpi(arith.CmpIPredicate.ult, e.index(present), e.index(rows))
    with e.when(fewer):
        _configure(area, present)
    yield
    with e.when(fewer):
        _configure(area, rows)


def _configure(area: ir.Value, rows: e.Index) -> None:
    upper, lower = e.minimum(rows, 16), e.subtract(arith.maxui(e.index(rows), e.index(17)), 16)
    for tile, height in enumerate([upper, upper, lower, lower, upper, lower]):
        e.store(arith.index_cast(e.integer(8), e.index(height)), e.at(area, _HEIGHTS_AT + tile))
    e.intrinsic("llvm.x86.ldtilecfg", [area])


def end() -> None:
    """Emit the release of the registers."""
    e.intrinsic("llvm.x86.tilerelease", [])


def permit() -> None:
    """Emit the request for permission to use tiles: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`. A process
    needs it once, for all its threads. Asking again costs a fraction of a microsecond, and in a plain runtime nothing
    else asks. `qmlir.load` asks first, and refuses the program if Linux denies it; a plain runtime then ends at the
    first tile instruction (SIGILL)."""
    number, request, feature = (e.constant(value, 64) for value in (158, 0x1023, 18))
    llvm.InlineAsmOp(
        e.integer(64), [number, request, feature], "syscall",
        "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}", has_side_effects=True,
    )  # fmt: skip


def multiply(
    instruction: str,
    rows: int,
    turns: Callable[[Callable[[ir.Value, int, ir.Value], None]], None],
    start: ir.Value | None,
    out: ir.Value,
    present: e.Index | None = None,
) -> None:
    """Emit the sums of a register tile.

    Args:
        instruction: LLVM's intrinsic that multiplies tiles.
        turns: emits the loop along K; in it, calls its argument with the activations' address and stride in bytes, and
            the address of the weights: 16 rows of `ROW_BYTES`.
        start: address of the initial sums, laid out as `out`; None for zero.
        out: address of the sums, `[rows][ROW_BYTES]`.
        present: how many of the rows are in memory; None for all.
    """
    second = rows > 16
    # If the second half of the rows is not in memory, rows of the first half are read again; their sums are not used.
    second_row: e.Index = 16
    if second and present is not None:
        second_row = arith.select(e.at_most(17, present), e.index(16), e.index(0))
    grid = [(i, v) for i in range(2 if second else 1) for v in range(2)]
    for i, v in grid:
        if start is None:
            e.intrinsic("llvm.x86.tilezero", [e.constant(2 * i + v, 8)])
        else:
            _move("llvm.x86.tileloadd64", 2 * i + v, _sums(start, i, v), ROW_BYTES)

    def turn(lhs: ir.Value, stride: int, rhs: ir.Value) -> None:
        _move("llvm.x86.tileloadd64", 6, rhs, ROW_BYTES)
        _move("llvm.x86.tileloadd64", 4, lhs, stride)
        _dot(instruction, 0, 4, 6)
        _move("llvm.x86.tileloadd64", 7, e.at(rhs, 64), ROW_BYTES)
        _dot(instruction, 1, 4, 7)
        if second:
            _move("llvm.x86.tileloadd64", 5, e.at(lhs, e.multiply(second_row, stride)), stride)
            _dot(instruction, 2, 5, 6)
            _dot(instruction, 3, 5, 7)

    turns(turn)
    for i, v in grid:
        _move("llvm.x86.tilestored64", 2 * i + v, _sums(out, i, v), ROW_BYTES)


def _sums(base: ir.Value, i: int, v: int) -> ir.Value:
    return e.at(base, i * 16 * ROW_BYTES + v * 64)


def _move(name: str, tile: int, address: ir.Value, stride: int) -> None:
    e.intrinsic(name, [e.constant(tile, 8), address, e.constant(stride, 64)])


def _dot(name: str, acc: int, lhs: int, rhs: int) -> None:
    e.intrinsic(name, [e.constant(acc, 8), e.constant(lhs, 8), e.constant(rhs, 8)])
