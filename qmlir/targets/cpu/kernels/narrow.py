"""Narrows several vectors to bytes at once if an epilogue ends in saturation: one pack instruction takes two vectors, a
narrowing store takes one."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.mlir import arith, ir, vector
from ....ir.walk import made_by
from . import emit as e

_LANES = 16


def saturating_pack(vectors: Sequence[ir.Value]) -> ir.Value | None:
    """The bytes of four vectors of 16 codes, quarter by quarter: quarter 0 of each of the four, then quarter 1 of each,
    and so on. None unless all codes are known to be i32 values saturated to bytes."""
    found = [_before_saturation(v) for v in vectors]
    wide = [w for w in found if w is not None]
    if len(wide) < len(found):
        return None
    words, both = e.vector_of(32, e.integer(16)), e.vector_of(64, e.integer(8))
    halves = [e.intrinsic("llvm.x86.avx512.packssdw.512", pair, words) for pair in (wide[:2], wide[2:])]
    return e.intrinsic("llvm.x86.avx512.packsswb.512", halves, both)


def rows_of_pack(packed: ir.Value) -> list[ir.Value]:
    """Split a `saturating_pack` of two rows, two vectors each, into the rows of 32 bytes."""
    words = e.as_words(packed)
    order = [4 * quarter + v for v in range(4) for quarter in range(4)]
    whole = e.as_bytes(vector.shuffle(words, words, order))
    return [vector.shuffle(whole, whole, list(range(32 * r, 32 * r + 32))) for r in range(2)]


def words_of(codes: ir.Value) -> ir.Value:
    """i32 values with these low bytes: the values that were truncated to the codes if these are known."""
    narrowed = made_by(codes, "arith.trunci")
    if narrowed is not None:
        source = narrowed.operands[0]
        if source.type == e.vector_of(_LANES, e.integer(32)):
            return source
    return arith.extui(e.vector_of(_LANES, e.integer(32)), codes)


def _before_saturation(codes: ir.Value) -> ir.Value | None:
    """The i32 values that were saturated to the bytes `codes`; None if `codes` were computed in another way."""
    words = words_of(codes)
    for name, bound in (("arith.minsi", 127), ("arith.maxsi", -128)):
        made = made_by(words, name)
        if made is None:
            return None
        words, limit = made.operands
        constant = made_by(limit, "arith.constant")
        if constant is None:
            return None
        value = ir.DenseElementsAttr(constant.attributes["value"])
        if not value.is_splat or int(value.get_splat_value().value) != bound:
            return None
    return words
