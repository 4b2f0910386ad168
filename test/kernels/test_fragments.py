"""The fragment layouts of matrix instructions, against the emulators', which state the vendors' manuals differently."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from qmlir.emulation.amd import matrix as amd
from qmlir.emulation.cuda import matrix as nvidia
from qmlir.emulation.cuda.block_scales import COLUMN_LANES, ROW_LANES
from qmlir.kernels.tile.instruction import Fragments, TiledMma
from qmlir.kernels.tile.layout import Layout
from qmlir.kernels.tile.packing import packed
from qmlir.targets.cuda.kernels.instructions import FRAGMENTS
from qmlir.targets.cuda.kernels.scaled_instructions import SCALED, ScaledMma
from qmlir.targets.rocm.kernels.instructions import INSTRUCTIONS, SCALED as AMD_SCALED, ScaledMfma

AMD = [(arch, i) for arch, kinds in INSTRUCTIONS.items() for i in kinds]


def held(layout: Layout, rows: str, columns: str) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """The lanes that hold each element, and the index of the element among the lane's values."""
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for lane, value in itertools.product(range(layout.size("lane")), range(layout.size("value"))):
        place = (layout.place(rows, lane=lane, value=value), layout.place(columns, lane=lane, value=value))
        found.setdefault(place, set()).add((lane, value))
    return found


@pytest.mark.parametrize(("arch", "instruction"), AMD, ids=[f"{a}-{i.name}-{i.element}" for a, i in AMD])
def test_amd(arch: str, instruction: object) -> None:
    fragments: Fragments = instruction.fragments  # type: ignore[attr-defined]
    k = fragments.shape[2]
    assert fragments.shape[:2] == (16, 16)
    if arch.startswith("gfx9"):
        operand, result = amd.operand_fragment(16, k, 64, k // 4), amd.mfma_result(16)
    else:
        operand, result = amd.wmma_operand(k, arch == "gfx1201"), amd.wmma_result(arch == "gfx1201")
    copies = {0, 16} if arch.startswith("gfx110") or arch == "gfx1151" else {0}
    for layout, axis in ((fragments.a, "m"), (fragments.b, "n")):
        want = {
            (row, at): {(int(operand.lane[row, at]) + copy, int(operand.place[row, at])) for copy in copies}
            for row, at in np.ndindex(16, k)
        }
        assert held(layout, axis, "k") == want
    places = {at: {(int(result.lane[at]), int(result.place[at]))} for at in np.ndindex(16, 16)}
    assert held(fragments.d, "m", "n") == places


@pytest.mark.parametrize("instruction", AMD_SCALED["gfx950"], ids=[i.table_name for i in AMD_SCALED["gfx950"]])
def test_amd_with_scales(instruction: ScaledMfma) -> None:
    """The layouts of the codes, 4-bit ones in pairs, and of the scales: a lane's word holds the scale of its block."""
    fragments, per = instruction.fragments, 8 // instruction.code_bits
    operand = amd.operand_fragment(16, 128, 64, 16 if per == 1 else 32)
    for layout, axis in ((fragments.a, "m"), (fragments.b, "n")):
        places = held(layout, axis, "k")
        for row, at in np.ndindex(16, 128):
            assert (int(operand.lane[row, at]), int(operand.place[row, at]) // per) in places[row, at // per]
    for scales, axis in ((fragments.a_scale, "m"), (fragments.b_scale, "n")):
        assert scales is not None
        assert held(scales, axis, "s") == {(row, s): {(row + 16 * s, 0)} for row, s in np.ndindex(16, 4)}


@pytest.mark.parametrize(("k", "bits"), FRAGMENTS)
def test_nvidia(k: int, bits: int) -> None:
    _as_emulated(FRAGMENTS[k, bits], k, *{8: ("s8", 1), 16: ("f16", 0x3C00)}[bits])


@pytest.mark.parametrize("instruction", SCALED, ids=[i.name for i in SCALED])
def test_nvidia_with_scales(instruction: ScaledMma) -> None:
    """The layouts of the codes, and of the scales: of the lanes in the table, the instruction reads the first one's."""
    fragments, k = instruction.fragments, instruction.fragments.shape[2]
    kind, one = {8: ("s8", 1), 4: ("e2m1", 2)}[instruction.code_bits]
    _as_emulated(fragments, k, kind, one)
    assert (k // instruction.block, 8 * instruction.depth // k) == (fragments.blocks, instruction.code_bits)
    for layout, axis, lanes in ((fragments.a_scale, "m", ROW_LANES), (fragments.b_scale, "n", COLUMN_LANES)):
        assert layout is not None
        for (row, block), places in held(layout, axis, "s").items():
            assert min(places) == (int(lanes[row]), block)
            assert {value for _, value in places} == {block}


def _as_emulated(fragments: Fragments, k: int, kind: str, one: int) -> None:
    """Check fragments against the emulator's. `one`: the code of 1 in type `kind`."""
    bits = {"s8": 8, "f16": 16, "e2m1": 4}[kind]
    per = 32 // bits
    assert fragments.shape == (16, 8, k)
    for layout, axis in ((fragments.a, "m"), (fragments.b, "n")):
        found: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for lane, value in itertools.product(range(32), range(layout.size("value"))):
            words = np.zeros((1, 32, layout.size("value") // per), np.uint32)
            words[0, lane, value // per] = one << bits * (value % per)
            matrix = nvidia._a_matrix(words, kind, 16, k) if axis == "m" else nvidia._b_matrix(words, kind, k)
            [(_, row, at)] = np.argwhere(matrix)
            found.setdefault((int(row), int(at)), set()).add((lane, value))
        assert held(layout, axis, "k") == found
    places = {
        (int(rows[lane]), int(columns[lane])): {(lane, register)}
        for register, (rows, columns) in enumerate(nvidia._c_places(4, False))
        for lane in range(32)
    }
    assert held(fragments.d, "m", "n") == places


def test_a_table_names_each_bit_once() -> None:
    with pytest.raises(ValueError, match="the bits of 'k' are not each named once"):
        Layout.of(lane="m0 k0", value="k0")
    with pytest.raises(ValueError, match="the bits of 'm' are not each named once"):
        Layout.of(lane="m0 m2")
    with pytest.raises(ValueError, match=r"'k' is not a bit of an axis, such as k2"):
        Layout.of(lane="k")


def test_places_are_linear_in_the_bits() -> None:
    layout = Layout.of(lane="m1 m2 . k2", value="k0 m0 k1")
    for lane, value in np.ndindex(16, 8):
        m = (lane & 3) << 1 | value >> 1 & 1
        k = (lane >> 3) << 2 | (value >> 2) << 1 | value & 1
        assert (layout.place("m", lane=lane, value=value), layout.place("k", lane=lane, value=value)) == (m, k)
    assert [layout.distinct("lane").place("number", lane=lane) for lane in (3, 7, 8, 12)] == [3, 3, 4, 4]
    assert layout.counted_in("k", 4).place("k", lane=8, value=5) == 1


@pytest.mark.parametrize("interleave", [1, 2, 4])
def test_a_lane_of_mma_sync_has_neighbouring_columns(interleave: int) -> None:
    """Columns are interleaved among fragments: the weight's and the result's columns are renumbered in the same way."""
    mma = TiledMma(FRAGMENTS[32, 8], "b", 32, interleave=interleave)
    for lane in range(32):
        mine = [mma.result.place("column", lane=lane, value=v, fragment=f) for v, f in mma.held]
        assert mine == list(range(mine[0], mine[0] + 2 * interleave))
    for lane, fragment in np.ndindex(32, interleave):
        column = mma.weight.place("column", lane=lane, fragment=fragment)
        assert (
            mma.columns.place("column", index=fragment * 8 + lane // 4) == column == lane // 4 * interleave + fragment
        )


@pytest.mark.sweep(fast=5, slow=60)
@pytest.mark.parametrize(("arch", "instruction"), AMD, ids=[f"{a}-{i.name}-{i.element}" for a, i in AMD])
def test_products_of_what_lanes_hold(arch: str, instruction: object) -> None:
    """The instructions' products of the fragments that lanes hold by the table add up to the product of the tile."""
    fragments: Fragments = instruction.fragments  # type: ignore[attr-defined]
    k, rng = fragments.shape[2], np.random.default_rng(0)
    for depth, run in ((k, fragments.a.size("value")), (4 * k, 2 * fragments.a.size("value"))):
        mma = TiledMma(fragments, "a", depth, run)
        rows, columns = (rng.integers(-128, 128, (16, depth)) for _ in range(2))
        total = np.zeros((16, 16), np.int64)
        per = fragments.a.size("value")
        for first in range(0, depth // k * per, per):
            a, b = np.zeros((2, 16, k), np.int64)
            for lane, value in itertools.product(range(fragments.lanes), range(per)):
                index = {"lane": lane, "value": first + value}
                column, row = mma.weight.place("column", **index), mma.activation.place("row", **index)
                a[fragments.a.place("m", lane=lane), fragments.a.place("k", lane=lane, value=value)] = columns[
                    column, mma.weight.place("k", **index)]  # fmt: skip
                b[fragments.b.place("n", lane=lane), fragments.b.place("k", lane=lane, value=value)] = rows[
                    row, mma.activation.place("k", **index)]  # fmt: skip
            total += a @ b.T
        made = np.zeros((16, 16), np.int64)
        for lane, value in itertools.product(range(fragments.lanes), range(fragments.d.size("value"))):
            at = mma.result.place("row", lane=lane, value=value), mma.result.place("column", lane=lane, value=value)
            d = fragments.d
            made[at] = total[d.place("m", lane=lane, value=value), d.place("n", lane=lane, value=value)]
        assert (made == rows @ columns.T).all()


def test_packed_order_of_short_codes() -> None:
    """Two codes share a byte: the low nibbles of a word hold four codes along K, the high nibbles the next four."""
    digits = [("k", 3), ("column", 1), ("column", 0), ("k", 2), ("k", 1), ("k", 0)]
    codes = np.random.default_rng(0).integers(-8, 8, (6, 30)).astype(np.int8)
    stored = packed(digits, codes.shape, ("column", "k"), bits=4)
    with_padding = np.zeros((8, 32), np.uint8)
    with_padding[:6, :30] = codes.view(np.uint8) & 15
    want = [
        with_padding[tile_n * 4 + column, tile_k * 16 + half * 8 + byte]
        | with_padding[tile_n * 4 + column, tile_k * 16 + half * 8 + 4 + byte] << 4
        for tile_n, tile_k, half, column, byte in np.ndindex(2, 2, 2, 4, 4)
    ]
    assert stored.apply(codes).reshape(-1).view(np.uint8).tolist() == want
