"""An emulated AMD GPU tracks unwritten registers by lane, word and half."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tinygrad")
from emulation.amd_kernels import Device, code_object, instructions, stored_by_gfx942

import qmlir
from qmlir.emulation.amd.lanes import dpp_lanes


@pytest.mark.parametrize("by", ["readlane", "bpermute"])
@pytest.mark.parametrize("lane", [3, 40])
def test_lanes_that_nobody_wrote_stay_so_in_others(lane: int, by: str) -> None:
    """Only the first 32 lanes write a register; every lane stores the value of one lane."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    move = [i.v_readlane_b32(v[11], v[2], lane), i.v_mov_b32_e32(v[4], s[11])]
    if by == "bpermute":
        move = [i.v_mov_b32_e32(v[3], 4 * lane), i.ds_bpermute_b32(v[4], v[3], v[2]), i.s_waitcnt(simm16=0xC07F)]
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.s_mov_b32(i.EXEC_HI, 0), i.v_mov_b32_e32(v[2], v[0]), i.s_mov_b32(i.EXEC_HI, -1), *move,
        i.global_store_dword(addr=v[1], data=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx942")
    target = device.buffer(np.zeros(64, np.int32), written=False)
    if lane >= 32:
        with pytest.raises(qmlir.EmulationError, match="what it stores comes from a register that nobody wrote"):
            device.launch(code_object("gfx942", lines), target, threads=64)
        return
    device.launch(code_object("gfx942", lines), target, threads=64)
    np.testing.assert_array_equal(device.read(target, None), np.full(64, lane))


def test_a_lane_that_is_written_while_it_is_inactive() -> None:
    """LLVM keeps scalars in lanes of a vector register in this way."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.s_movk_i32(s[10], 7), i.s_mov_b32(i.EXEC_HI, 0), i.v_writelane_b32(v[2], s[10], 40), i.s_mov_b32(i.EXEC_HI, -1),
        i.v_readlane_b32(v[11], v[2], 40), i.v_mov_b32_e32(v[4], s[11]),
        i.global_store_dword(addr=v[1], data=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx942")
    target = device.buffer(np.zeros(64, np.int32), written=False)
    device.launch(code_object("gfx942", lines), target, threads=64)
    np.testing.assert_array_equal(device.read(target, None), np.full(64, 7))


UNWRITTEN = "what it stores comes from a register that nobody wrote"


@pytest.mark.parametrize("word", [0, 1])
def test_a_product_whose_high_word_nobody_wrote(word: int) -> None:
    """LLVM adds `v[3:4]` although only v3 is needed: the low word of the sum does not depend on v4."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.v_mov_b32_e32(v[3], 5), i.v_mad_u64_u32(v[4:5], s[10:11], v[0], 3, v[3:4]),
        i.global_store_dword(addr=v[1], data=v[4 + word], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    found = stored_by_gfx942(lines, f"{UNWRITTEN} .v5." if word else "")
    if not word:
        np.testing.assert_array_equal(found, 3 * np.arange(64) + 5)


def test_a_shift_of_64_bits_in_its_short_form() -> None:
    """The encoding of gfx12's `v_lshlrev_b64` has 32 bits, and its second operand has another name."""
    i = instructions("gfx1201")
    v, s = i.v, i.s
    lines = [
        i.s_load_b64(s[4:5], s[0:1], soffset=i.NULL), i.s_wait_kmcnt(simm16=0), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.v_mov_b32_e32(v[2], 5), i.v_lshlrev_b64_e32(v[4:5], 3, v[2:3]),
        i.global_store_b32(vaddr=v[1:2], vsrc=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx1201")
    target = device.buffer(np.zeros(32, np.int32), written=False)
    device.launch(code_object("gfx1201", lines, lanes=32), target, threads=32)
    np.testing.assert_array_equal(device.read(target, None), np.full(32, 40))


def test_a_lane_that_nobody_wrote_does_not_touch_the_masks_of_others() -> None:
    """A division by a register that half of the lanes wrote: each lane has its own flag in the mask that it returns."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.s_mov_b32(i.EXEC_HI, 0), i.v_mov_b32_e32(v[2], 1.0), i.s_mov_b32(i.EXEC_HI, -1),
        i.v_div_scale_f32(v[3], i.VCC, v[2], v[2], 1.0), i.s_and_b64(i.VCC, i.VCC, i.EXEC),
        i.v_div_fmas_f32_e64(v[4], v[3], 1.0, 1.0), i.s_mov_b32(i.EXEC_HI, 0),
        i.global_store_dword(addr=v[1], data=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx942")
    target = device.buffer(np.zeros(64, np.float32), written=False)
    device.launch(code_object("gfx942", lines), target, threads=64)
    np.testing.assert_array_equal(device.read(target, None)[:32], np.full(32, 2))
    del lines[-3]
    with pytest.raises(
        qmlir.EmulationError, match=r"lane 32: what it stores comes from a register that nobody wrote .v4."
    ):
        device.launch(code_object("gfx942", lines), target, threads=64)


@pytest.mark.parametrize("half", [0, 1])
def test_halves_of_a_packed_move_are_known_or_not(half: int) -> None:
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.v_mov_b32_e32(v[2], 7), i.v_pk_mov_b32(v[4:5], v[2:3], v[2:3], opsel=2, opsel_hi=3, opsel_hi2=1),
        i.global_store_dword(addr=v[1], data=v[4 + half], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    found = stored_by_gfx942(lines, f"{UNWRITTEN} .v5." if half else "")
    if not half:
        np.testing.assert_array_equal(found, np.full(64, 7))


@pytest.mark.parametrize("through", ["one", "two", "wide store", "private"])
@pytest.mark.parametrize("word", [0, 1])
def test_words_of_one_access_are_known_or_not(through: str, word: int) -> None:
    """LLVM loads two words of LDS where it needs one, and spills registers of which one was never written."""
    i = instructions("gfx942")
    v, s, arrived = i.v, i.s, i.s_waitcnt(simm16=0)
    place = i.v_lshlrev_b32_e32(v[6], 3, v[0])
    first, pair = i.ds_write_b32(addr=v[6], data0=v[2]), i.ds_read_b64(v[4:5], addr=v[6])
    read, write = i.ds_read2_b32, i.ds_write_b64
    lines = {
        "one": [place, first, arrived, pair],
        "two": [place, first, arrived, read(v[4:5], addr=v[6], offset0=0, offset1=1)],
        "wide store": [place, write(addr=v[6], data0=v[2:3]), arrived, pair],
        "private": [i.scratch_store_dwordx2(data=v[2:3]), arrived, i.scratch_load_dwordx2(v[4:5])],
    }[through]  # fmt: skip
    whole = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), arrived, i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.v_mov_b32_e32(v[2], 5), *lines, arrived,
        i.global_store_dword(addr=v[1], data=v[4 + word], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx942")
    target = device.buffer(np.zeros(64, np.int32), written=False)
    code = code_object("gfx942", whole, lds=512, scratch=8)
    if word:
        origin = r"LDS that nobody wrote .byte 4." if through in ("one", "two") else r"a register that nobody wrote"
        with pytest.raises(qmlir.EmulationError, match=f"what it stores comes from {origin} .v5."):
            device.launch(code, target, threads=64)
        return
    device.launch(code, target, threads=64)
    np.testing.assert_array_equal(device.read(target, None), np.full(64, 5))


@pytest.mark.parametrize(
    ("control", "more", "first", "active", "lane"),
    [
        # Each lane of the high half reads lane 31, and the others keep their values.
        (0x143, {}, 7, 64, None),
        (0x143, {}, None, 64, 0),
        # The neighbour within four lanes: written only in the low half.
        (0xB1, {}, 7, 64, 32), (0xB1, {}, 7, 32, None),
        # Rows that the mask leaves out keep their values.
        (0xB1, {"row_mask": 3}, 7, 64, None), (0xB1, {"row_mask": 7}, 7, 64, 32), (0xB1, {"row_mask": 3}, None, 64, 32),
        # A lane that would read beyond its row keeps its value, or reads 0.
        (0x111, {}, 7, 32, None), (0x111, {}, None, 32, 0), (0x111, {"bc": 1}, None, 32, None),
        # The lane after the last active one is not read.
        (0x130, {"bc": 1}, 7, 32, None), (0x130, {}, 7, 32, None), (0x130, {}, 7, 64, 31),
    ],
)  # fmt: skip
@pytest.mark.parametrize("operation", ["move", "add to itself"])
def test_lanes_that_another_one_reads_by_dpp(
    control: int, more: dict[str, int], first: int | None, active: int, lane: int | None, operation: str
) -> None:
    """The first 32 lanes write a register. DPP reads it into a register that holds `first`, or is unwritten, while
    `active` lanes are active, which then store the result. `lane`: the first one that stores an unwritten value."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    given = {"vsrc0": v[2], "dpp": control, "bc": 0, "row_mask": 15, "bank_mask": 15, **more}
    if operation == "move":
        moved = i.VOP1_DPP16(i.VOP1Op.V_MOV_B32_E32, v[4], src0=i.DPP16, **given)
    else:  # the lane's own operand matters too: v0 is written in every lane
        moved = i.VOP2_DPP16(i.VOP2Op.V_ADD_U32_E32, v[4], src0=i.DPP16, vsrc1=v[0], **given)
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.s_mov_b32(i.EXEC_HI, 0), i.v_mov_b32_e32(v[2], v[0]), i.s_mov_b32(i.EXEC_HI, -1),
        *([] if first is None else [i.v_mov_b32_e32(v[4], first)]), *([] if active == 64 else [i.s_mov_b32(i.EXEC_HI, 0)]),
        moved, i.global_store_dword(addr=v[1], data=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx942")
    target = device.buffer(np.zeros(64, np.int32), written=False)
    code = code_object("gfx942", lines)
    if lane is not None:
        message = rf"lane {lane}: what it stores comes from a register that nobody wrote .v4."
        with pytest.raises(qmlir.EmulationError, match=message):
            device.launch(code, target, threads=64)
        return
    device.launch(code, target, threads=64)
    lanes = np.arange(64)
    source = dpp_lanes(control, 64)
    reads = (source >= 0) & (source < active) & (more.get("row_mask", 15) >> lanes // 16 & 1 == 1)
    own = 0 if operation == "move" else lanes
    want = np.where(reads, source + own, own if more.get("bc") else first or 0)
    np.testing.assert_array_equal(device.read(target, None)[:active], want[:active])


@pytest.mark.parametrize("written", [False, True])
def test_a_lanes_own_value_counts_beside_the_one_read_by_dpp(written: bool) -> None:
    """Each lane of the high half adds its own value to that of lane 31."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        *([i.v_mov_b32_e32(v[2], 1)] if written else []), i.v_mov_b32_e32(v[4], 0),
        i.s_mov_b32(i.EXEC_HI, 0), i.v_mov_b32_e32(v[2], v[0]), i.s_mov_b32(i.EXEC_HI, -1),
        i.VOP2_DPP16(i.VOP2Op.V_ADD_U32_E32, v[4], src0=i.DPP16, vsrc0=v[2], vsrc1=v[2], dpp=0x143, bc=0, row_mask=15,
                     bank_mask=15),
        i.global_store_dword(addr=v[1], data=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    found = stored_by_gfx942(lines, "" if written else f"lane 32: {UNWRITTEN} .v4.")
    if written:
        np.testing.assert_array_equal(found, np.repeat([0, 32], 32))


@pytest.mark.parametrize("side", [0, 1])
def test_a_choice_of_what_another_lane_holds(side: int) -> None:
    """The operand that is not chosen may be unwritten."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.s_mov_b64(i.VCC, -side),
        i.VOP2_DPP16(i.VOP2Op.V_CNDMASK_B32_E32, v[4], src0=i.DPP16, vsrc0=v[2], vsrc1=v[0], dpp=0xB1, bc=1, row_mask=15,
                     bank_mask=15),
        i.global_store_dword(addr=v[1], data=v[4], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    found = stored_by_gfx942(lines, f"{UNWRITTEN} .v4." if side == 0 else "")
    if side == 1:
        np.testing.assert_array_equal(found, np.arange(64))


@pytest.mark.parametrize("loaded", [0, 1, 2])
@pytest.mark.parametrize("reader", ["low byte", "high byte", "low sum", "whole"])
def test_halves_of_a_register_arrive_one_by_one(reader: str, loaded: int) -> None:
    """LLVM loads two bytes into the halves of one register, and stores the first before the second has arrived.
    `loaded`: how many of the two loads are waited for."""
    i = instructions("gfx1100")
    v, s = i.v, i.s
    use = {
        "low byte": i.ds_store_b8(addr=v[1], data0=v[2]), "high byte": i.ds_store_b8_d16_hi(addr=v[1], data0=v[2]),
        "low sum": i.v_add_f16_e32(v[3].l, v[2].l, v[2].l), "whole": i.v_mov_b32_e32(v[3], v[2]),
    }[reader]  # fmt: skip
    lines = [
        i.s_load_b64(s[4:5], s[0:1], soffset=i.NULL), i.s_waitcnt(simm16=0xFC07), i.v_mov_b32_e32(v[1], 0),
        i.v_mov_b32_e32(v[2], 0), i.global_load_d16_u8(v[2], addr=v[1], saddr=s[4:5]),
        i.global_load_d16_hi_u8(v[2], addr=v[1], saddr=s[4:5], offset=1),
        i.s_waitcnt(simm16=(2 - loaded) << 10 | 0x3F7), use, i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx1100")
    source = device.buffer(np.zeros(2, np.int8))
    code = code_object("gfx1100", lines, lds=64, lanes=32)
    if loaded >= (1 if reader.startswith("low") else 2):
        device.launch(code, source, threads=1)
        return
    with pytest.raises(qmlir.EmulationError, match="it reads v2 before the load that fills it was waited for"):
        device.launch(code, source, threads=1)
