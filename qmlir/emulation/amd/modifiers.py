"""Operand and result modifiers of vector instructions: halves, bytes (SDWA), lanes (DPP), signs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ...dialect.dtypes import Array
from ..launch import EmulationError
from .arithmetic import SATURATING
from .decode import VGPR
from .lanes import dpp, dpp_target, only
from .operands import WIDTH, Builder, ReadOperand, Store
from .waves import Waves

_FLOATS = ("f16", "f32", "f64")
# They write one half of a register and keep the other, even on CDNA, where other 16-bit results clear it.
_KEEP = re.compile(r"v_(fma|mad|div_fixup)_|v_(fma|mad)_mix(lo|hi)|v_cvt_pk_(fp8|bf8)|v_cvt_sr")


def source(b: Builder, position: int, kind: str) -> ReadOperand:
    """The operand `src<position>` with all modifiers of the encoding."""
    f, form = b.instruction.fields, b.instruction.form
    number = _number(f, position)
    half = 0
    if "VOP3" in form:
        half = f.get("opsel", 0) >> position & 1 if WIDTH[kind] == 16 else 0
    elif WIDTH[kind] == 16 and not b.cdna and number >= VGPR + 128:
        number, half = number - 128, 1
    if "SDWA" in form:
        fetch = _selected(b, number, position, kind)
    elif "DPP" in form and position == 0:
        direct, b.uses = b.uses, 0
        fetch = dpp(b, b.read(number, kind, half))
        b.across, b.uses = b.uses, direct
    else:
        fetch = b.read(number, kind, half)
    if kind in _FLOATS:
        negate, absolute = _signs(f, form, position)
        if absolute:
            fetch = _then(fetch, np.abs)
        if negate:
            fetch = _then(fetch, np.negative)
    return fetch


def _then(fetch: ReadOperand, function: Callable[[Array], Array]) -> ReadOperand:
    return lambda g: function(fetch(g))


def _number(f: dict[str, int], position: int) -> int:
    if position == 0 and "vsrc0" in f:
        return f["vsrc0"]
    return f[f"src{position}"] if f"src{position}" in f else f[f"vsrc{position}"]


def _signs(f: dict[str, int], form: str, position: int) -> tuple[bool, bool]:
    if ("DPP" in form or "SDWA" in form) and f"src{position}_neg" in f:
        return bool(f[f"src{position}_neg"]), bool(f[f"src{position}_abs"])
    if "VOP3" not in form:
        return False, False
    return bool(f.get("neg", 0) >> position & 1), bool(f.get("abs", 0) >> position & 1)


def _selected(b: Builder, number: int, position: int, kind: str) -> ReadOperand:
    """SDWA: an operand that is one byte or half of a 32-bit register."""
    f = b.instruction.fields
    if (position == 0 and f.get("s0")) or (position == 1 and f.get("s1")):
        number -= VGPR
    choice, signed = f.get(f"src{position}_sel", 6), f.get(f"src{position}_sext", 0)
    if position == 1 and b.instruction.name.startswith("v_cndmask"):
        choice = f.get("src1_sel", 6)
    fetch = b.read(number, "u32")
    if choice == 6:
        return _then(fetch, lambda x: _as(x, kind))
    shift, bits = (8 * choice, 8) if choice < 4 else (16 * (choice - 4), 16)

    def part(x: Array) -> Array:
        x = np.asarray(x)
        if signed:
            return (x.view(np.int32) << (32 - bits - shift) >> (32 - bits)).view(np.uint32)
        return (x >> np.uint32(shift)) & np.uint32((1 << bits) - 1)

    return _then(fetch, lambda x: _as(part(x), kind))


def _as(x: Array, kind: str) -> Array:
    x = np.asarray(x)
    if WIDTH[kind] == 16:
        return x.astype(np.uint16).view(_DTYPES[kind])
    return x.view(_DTYPES[kind])


_DTYPES = {"u16": np.uint16, "i16": np.int16, "f16": np.float16, "u32": np.uint32, "i32": np.int32, "f32": np.float32}


def destination(b: Builder, kind: str) -> Store:
    """`vdst` with output modifiers."""
    f, form = b.instruction.fields, b.instruction.form
    number, half, keep = f["vdst"], 0, True
    if WIDTH[kind] == 16:
        if "VOP3" in form:
            half = f.get("opsel", 0) >> 3 & 1
        elif not b.cdna and number >= VGPR + 128:
            number, half = number - 128, 1
        keep = not b.cdna or half == 1 or _KEEP.match(b.instruction.name) is not None
    if "SDWA" in form and "dst_sel" in f and f["dst_sel"] != 6:
        return _select_result(b, number, kind)
    store = b.write(number, kind, half, keep)
    if "DPP" in form:
        store = _masked_rows(b, number, kind, store)
    scale, clamp = f.get("omod", 0), f.get("clmp", 0)
    if kind in _FLOATS and (scale or clamp):
        factor = (1, 2, 4, 0.5)[scale]

        def modified(g: Waves, x: Array) -> None:
            x = x * np.asarray(x).dtype.type(factor)
            store(g, np.where(np.isnan(x), 0, np.clip(x, 0, 1)).astype(x.dtype) if clamp else x)

        return modified
    if clamp and kind not in _FLOATS and "SDWA" not in form and b.instruction.name not in SATURATING:
        raise EmulationError(f"{b.instruction.name} that saturates is not emulated")
    return store


def _select_result(b: Builder, number: int, kind: str) -> Store:
    """SDWA: store the result to one byte or half of a register."""
    f = b.instruction.fields
    choice, unused = f["dst_sel"], f["dst_unused"]
    shift, bits = (8 * choice, 8) if choice < 4 else (16 * (choice - 4), 16)
    mask = ((1 << bits) - 1) << shift
    old = b.read(number, "u32") if unused == 2 else None
    store = b.write(number, "u32")

    def write(g: Waves, x: Array) -> None:
        x = np.asarray(x).astype(_DTYPES[kind])
        x = (x.view(np.uint16) if WIDTH[kind] == 16 else x.view(np.uint32)).astype(np.uint32)
        placed = (x << np.uint32(shift)) & np.uint32(mask)
        if old is not None:
            placed = placed | (old(g) & np.uint32(~mask & 0xFFFFFFFF))
        elif unused == 1:
            signed = (x << np.uint32(32 - bits)).view(np.int32) >> (32 - bits)
            placed = (signed << shift).view(np.uint32)
        store(g, placed)

    return write


def _masked_rows(b: Builder, number: int, kind: str, store: Store) -> Store:
    """DPP: write only the rows and banks that its masks enable, and lanes that have a source."""
    enabled = dpp_target(b)
    if enabled is None:
        return store

    def write(g: Waves, x: Array) -> None:
        with only(g, enabled(g)):
            store(g, x)

    return write
