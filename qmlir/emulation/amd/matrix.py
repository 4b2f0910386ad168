"""Matrix instructions: MFMA of CDNA, WMMA of RDNA.

A `Fragment` says which lane holds which element. Sources: AMD's CDNA 3, CDNA 4, RDNA 3 and RDNA 4 ISA guides (chapters
"Matrix Arithmetic Instructions" and "WMMA"). In CDNA 4's scaled instructions, a lane holds one-byte codes in two runs
of 16 along K (Triton's comments in `chooseScaledMfmaScaleLayout`).

Integer results are exact. Float products are summed in f64 and rounded once to f32; hardware rounds in between, in an
order that AMD does not state.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..launch import EmulationError
from . import floats
from .decode import VGPR
from .gang import Gang
from .operands import Builder, DecodedOperation, ReadOperand
from .shadow import InstructionFault, RegisterShadow
from .waves import Array, register_bits

U32 = np.uint32


@dataclass(frozen=True)
class Fragment:
    """The lane of each element of a matrix `[rows, k]`, and its place in that lane (for results, the register)."""

    lane: Array
    place: Array


@functools.lru_cache
def operand_fragment(rows: int, k: int, lanes: int, run: int) -> Fragment:
    """Each lane of a group of `rows` lanes holds a row. The groups take runs of K in turn.

    run: number of consecutive elements along K that a lane holds.
    """
    groups = lanes // rows
    row, at = np.arange(rows)[:, None], np.arange(k)[None, :]
    lane = row + rows * (at // run % groups)
    place = at // (run * groups) * run + at % run
    return Fragment(*(np.ascontiguousarray(np.broadcast_to(x, (rows, k))) for x in (lane, place)))


@functools.lru_cache
def mfma_result(m: int) -> Fragment:
    """CDNA: each lane of a group of `m` lanes holds a column. The groups take four rows each in turn."""
    row, column = np.arange(m)[:, None], np.arange(m)[None, :]
    groups = 64 // m
    lane = column + m * (row // 4 % groups)
    place = row // (4 * groups) * 4 + row % 4
    return Fragment(*(np.ascontiguousarray(np.broadcast_to(x, (m, m))) for x in (lane, place)))


@functools.lru_cache
def wmma_result(rdna4: bool) -> Fragment:
    """RDNA 3: even rows in lanes 0-15, odd rows in lanes 16-31. RDNA 4: rows 0-7 and rows 8-15."""
    row, column = np.arange(16)[:, None], np.arange(16)[None, :]
    half, place = (row // 8, row % 8) if rdna4 else (row % 2, row // 2)
    return Fragment(*(np.ascontiguousarray(np.broadcast_to(x, (16, 16))) for x in (column + 16 * half, place)))


@functools.lru_cache
def wmma_operand(k: int, rdna4: bool) -> Fragment:
    if rdna4:
        return operand_fragment(16, k, 32, k // 2)
    row, at = np.arange(16)[:, None], np.arange(k)[None, :]
    return Fragment(*(np.ascontiguousarray(np.broadcast_to(x, (16, k))) for x in (row, at)))


@dataclass(frozen=True)
class MatrixElement:
    """An operand type: its bits, and the function from words `uint32[..., regs]` to values `[..., elements]`."""

    bits: int
    decode: Callable[[Array], Array]
    work: npt.DTypeLike = np.float64


def _codes(words: Array) -> Array:
    return np.ascontiguousarray(words).view(np.uint8)


def _nibbles(words: Array) -> Array:
    octets = _codes(words)
    return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)


def _sixes(words: Array) -> Array:
    bits = np.unpackbits(_codes(words), axis=-1, bitorder="little")
    six = bits.reshape(*bits.shape[:-1], -1, 6)
    found: Array = (six << np.arange(6, dtype=np.uint8)).sum(axis=-1)
    return found


def elements(kind: str, fnuz: bool, signed: bool = True) -> MatrixElement:
    """The operand type that an instruction's name spells as `kind`."""
    f32, f64 = np.float32, np.float64
    if kind in ("i8", "iu8"):
        dtype = np.int8 if signed else np.uint8
        return MatrixElement(8, lambda w: _codes(w).view(dtype).astype(f32), f32)  # exact: |sum| < 2 ** 24
    if kind == "iu4":
        return MatrixElement(
            4, lambda w: (_nibbles(w).astype(f32) - (16 * (_nibbles(w) > 7) if signed else 0)).astype(f32), f32
        )
    if kind == "f16":
        return MatrixElement(16, lambda w: np.ascontiguousarray(w).view(np.float16).astype(f64))
    if kind == "bf16":
        return MatrixElement(16, lambda w: floats.from_bf16(np.ascontiguousarray(w).view(np.uint16)).astype(f64))
    if kind == "f32":
        return MatrixElement(32, lambda w: np.ascontiguousarray(w).view(f32).astype(f64))
    if kind in ("fp8", "bf8"):
        table = floats.fp8_table(kind, fnuz).astype(f64)
        return MatrixElement(8, lambda w: table[_codes(w)])
    table = {"fp4": floats.FP4, "fp6": floats.FP6, "bf6": floats.BF6}[kind].astype(f64)
    return MatrixElement(4 if kind == "fp4" else 6, lambda w: table[_nibbles(w) if kind == "fp4" else _sixes(w)])


_F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")


@dataclass
class MatrixProduct:
    """`D = A B + C`: fragments, types and registers.

    Attributes:
        result: "i32" or "f32".
        scales: for the scaled instructions, the scale registers of A and B, and the byte of each to use.
    """

    a: tuple[int, Fragment, MatrixElement]
    b: tuple[int, Fragment, MatrixElement]
    c: int
    d: int
    into: Fragment
    lanes: int
    result: str
    constant: float | None = None
    scales: Sequence[tuple[ReadOperand, int]] | None = None
    clamp: bool = False

    def registers(self, side: tuple[int, Fragment, MatrixElement]) -> int:
        return (int(side[1].place.max()) + 1) * side[2].bits // 32

    def operand(self, g: Gang, side: tuple[int, Fragment, MatrixElement]) -> Array:
        """The values `[waves, rows, k]` of an operand."""
        first, fragment, kind = side
        words = g.u32[first - VGPR : first - VGPR + self.registers(side), g.at]
        decoded = kind.decode(np.ascontiguousarray(np.moveaxis(words, 0, -1)))
        found: Array = decoded[:, fragment.lane, fragment.place]
        return found

    def run(self, g: Gang) -> None:
        a, b = self.operand(g, self.a), self.operand(g, self.b)
        if self.scales is not None:
            a, b = (_scaled(g, x, *scale) for x, scale in zip((a, b), self.scales, strict=True))
        product = a @ b.transpose(0, 2, 1)
        into = self.into
        count = int(into.place.max()) + 1
        added: Array | float
        if self.constant is not None:
            added = self.constant
        else:
            view = g.f32 if self.result == "f32" else g.i32
            added = np.moveaxis(view[self.c - VGPR : self.c - VGPR + count, g.at], 0, -1)[:, into.lane, into.place]
        total = product.astype(np.float64) + added
        if self.result == "f32":
            values = total.astype(np.float32).view(U32)
        else:
            if self.clamp:
                total = np.clip(total, -(2.0**31), 2.0**31 - 1)
            values = total.astype(np.int64).astype(U32)
        out = np.empty((count, g.count, self.lanes), U32)
        out[into.place, :, into.lane] = np.moveaxis(values, 0, -1)
        g.u32[self.d - VGPR : self.d - VGPR + count, g.at] = out

    def flow(self, g: Gang, shadow: RegisterShadow) -> None:
        """An element is unwritten if any value in its row of A or its column of B, or its addend, is."""
        sides = []
        for side in (self.a, self.b):
            first, fragment, kind = side
            part = shadow.unset[first - VGPR : first - VGPR + self.registers(side), g.at]
            place = fragment.place * kind.bits // 32
            sides.append(np.moveaxis(part, 0, -1)[:, fragment.lane, place].max(axis=-1))
        found = np.maximum(sides[0][:, :, None], sides[1][:, None, :])
        into, count = self.into, int(self.into.place.max()) + 1
        if self.constant is None:
            part = shadow.unset[self.c - VGPR : self.c - VGPR + count, g.at]
            found = np.maximum(found, np.moveaxis(part, 0, -1)[:, into.lane, into.place])
        out = np.empty((count, g.count, self.lanes), np.uint16)
        out[into.place, :, into.lane] = np.moveaxis(found, 0, -1)
        shadow.unset[self.d - VGPR : self.d - VGPR + count, g.at] = out
        for i in range(count):
            shadow.update(self.d + i)


def _scaled(g: Gang, x: Array, fetch: ReadOperand, byte: int) -> Array:
    """Multiply rows by e8m0 scales: lane `row + rows * group` has that of the row's block `group` of 32 along K."""
    rows, k = x.shape[1:]
    codes = (np.broadcast_to(fetch(g), (g.count, g.lanes)) >> U32(8 * byte)).astype(np.uint8)
    exponents = codes[:, : rows * (k // 32)].reshape(-1, k // 32, rows).transpose(0, 2, 1)
    factor = np.where(exponents == 255, np.nan, np.ldexp(1.0, exponents.astype(np.int32) - 127))
    found: Array = x * np.repeat(factor, 32, axis=2)
    return found


def build(b: Builder) -> DecodedOperation | None:
    """The operation of a matrix instruction, None if it is of another kind."""
    name = b.instruction.name
    if match := re.fullmatch(r"v_mfma_(scale_)?(f32|i32)_(\d+)x(\d+)x(\d+)_?(?:(\d)b_)?(\w+?)", name):
        return _mfma(b, bool(match[1]), match[2], int(match[3]), int(match[5]), match[6], match[7])
    if match := re.fullmatch(r"v_wmma_(f32|i32)_16x16x(\d+)_(\w+)", name):
        return _wmma(b, match[1], int(match[2]), match[3])
    if name in ("v_accvgpr_read_b32", "v_accvgpr_read", "v_accvgpr_write_b32", "v_accvgpr_write", "v_accvgpr_mov_b32"):
        return _accumulator_move(b, name)
    return None


def _mfma(b: Builder, scaled: bool, result: str, m: int, k: int, blocks: str | None, what: str) -> DecodedOperation:
    f = b.instruction.fields
    if blocks or m == 4:
        raise EmulationError(f"{b.instruction.name} is not emulated")
    c_is_acc = 256 if f["acc_cd"] else 0
    if what == "f8f6f4":
        kinds = [_F8F6F4[f["cbsz"]], _F8F6F4[f["blgp"]]]
    else:
        names = re.findall(r"fp8|bf8|bf16|f16|f32|i8", what)
        kinds = [names[0], names[-1]]
        if f["cbsz"] or f["abid"] or f["blgp"]:
            raise EmulationError(f"{b.instruction.name} that broadcasts or negates its operands is not emulated")
    sides = []
    for i, kind in enumerate(kinds):
        element = elements(kind, b.generation.fnuz)
        run = k // (64 // m)
        if what == "f8f6f4" and element.bits != 4:
            run = 16
        first = f[f"src{i}"] + (256 if f["acc"] >> i & 1 else 0)
        sides.append((first, operand_fragment(m, k, 64, run), element))
    scales = None
    if scaled:
        fetch = [b.read(f[f"scale_src{i}"], "u32") for i in (0, 1)]
        select = [(f["opsel"] >> i & 1) | (f["opsel_hi"] >> i & 1) << 1 for i in (0, 1)]
        scales = list(zip(fetch, select, strict=True))
    constant, c = None, f["src2"]
    if c < VGPR:
        constant = float(b.constant(c, "f32" if result == "f32" else "i32"))
    else:
        c += c_is_acc
    product = MatrixProduct(
        sides[0],
        sides[1],
        c,
        f["vdst"] + c_is_acc,
        mfma_result(m),
        64,
        result,
        constant,
        scales,
        bool(f.get("clmp", 0)),
    )
    return _operation(b, product, product.run)


def _wmma(b: Builder, result: str, k: int, what: str) -> DecodedOperation:
    f = b.instruction.fields
    rdna4 = b.generation.tables == "rdna4"
    if b.lanes != 32:
        raise EmulationError(f"{b.instruction.name} of waves of 64 lanes is not emulated")
    names = re.findall(r"fp8|bf8|bf16|f16|iu8|iu4", what)
    fragment = wmma_operand(k, rdna4)
    sides = []
    for i, kind in enumerate((names[0], names[-1])):
        sides.append((f[f"src{i}"], fragment, elements(kind, b.generation.fnuz, bool(f["neg"] >> i & 1))))
    constant, c = None, f["src2"]
    if c < VGPR:
        constant = float(b.constant(c, "f32" if result == "f32" else "i32"))
    product = MatrixProduct(
        sides[0], sides[1], c, f["vdst"], wmma_result(rdna4), 32, result, constant, clamp=bool(f.get("clmp", 0))
    )
    if result == "f32" and (f["neg"] or f["neg_hi"]):
        raise EmulationError(f"{b.instruction.name} that negates its operands is not emulated")

    def run(g: Gang) -> None:
        if not g.full:
            raise InstructionFault("a WMMA instruction with inactive lanes", int(np.argmin(g.on.all(axis=1))), -1)
        if not rdna4:
            for side in sides:
                first = side[0] - VGPR
                words = g.u32[first : first + product.registers(side), g.at]
                if not np.array_equal(words[..., :16], words[..., 16:]):
                    raise InstructionFault("lanes 16 to 31 do not hold what lanes 0 to 15 hold of an operand of WMMA")
        product.run(g)

    return _operation(b, product, run)


def _operation(b: Builder, product: MatrixProduct, run: Callable[[Gang], None]) -> DecodedOperation:
    count = int(product.into.place.max()) + 1
    uses = b.uses
    for side in (product.a, product.b):
        uses |= register_bits(side[0], product.registers(side))
    if product.constant is None:
        uses |= register_bits(product.c, count)
    return DecodedOperation(b.instruction, run, uses, register_bits(product.d, count), "matrix", product.flow)


def _accumulator_move(b: Builder, name: str) -> DecodedOperation:
    f = b.instruction.fields
    source, target = f["src0"], f["vdst"]
    if "read" in name or "mov" in name:
        source += 256 if VGPR <= source < 2 * VGPR else 0
    if "write" in name or "mov" in name:
        target += 256
    fetch, store = b.read(source, "u32"), b.write(target, "u32")
    return DecodedOperation(b.instruction, lambda g: store(g, fetch(g)), b.uses, b.defines)
