"""Faults that an emulated AMD GPU finds: each kernel runs right, and is then broken in one place."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tinygrad")
from emulation.amd_kernels import Device, code_object, instructions, stored_by_gfx942

import qmlir

WAVE = {"gfx942": 64, "gfx1100": 32, "gfx1201": 32}
GROUPS = 3


def exchange(machine: str) -> dict[str, Any]:
    """Named lines of `out[i] = in[i] + 1` through LDS: each wave reads what the other wave of its workgroup wrote."""
    i = instructions(machine)
    v, s, null = i.v, i.s, i.NULL
    other = 4 * WAVE[machine]
    if machine == "gfx942":
        lines = {
            "arguments": i.s_load_dwordx4(s[4:7], s[0:1], offset=0, imm=1), "await arguments": i.s_waitcnt(simm16=0xC07F),
            "group": i.s_mul_i32(s[8], s[2], 2 * other), "place": i.v_lshlrev_b32_e32(v[1], 2, v[0]),
            "in": i.s_add_u32(s[4], s[4], s[8]), "in high": i.s_addc_u32(s[5], s[5], 0),
            "out": i.s_add_u32(s[6], s[6], s[8]), "out high": i.s_addc_u32(s[7], s[7], 0),
            "load": i.global_load_dword(v[2], v[1], saddr=s[4:5]), "await load": i.s_waitcnt(simm16=0x0F70),
            "add": i.v_add_u32_e32(v[2], 1, v[2]), "write": i.ds_write_b32(addr=v[1], data0=v[2]),
            "await write": i.s_waitcnt(simm16=0xC07F), "barrier": i.s_barrier(),
            "turn": i.v_xor_b32_e32(v[3], other, v[1]), "read": i.ds_read_b32(v[4], addr=v[3]),
            "await read": i.s_waitcnt(simm16=0xC07F), "store": i.global_store_dword(addr=v[3], data=v[4], saddr=s[6:7]),
        }  # fmt: skip
    else:
        gfx12 = machine == "gfx1201"
        group = i.ttmp[9] if gfx12 else s[2]
        wait = (lambda kind: {"k": i.s_wait_kmcnt, "l": i.s_wait_loadcnt, "d": i.s_wait_dscnt}[kind](simm16=0)) if gfx12 else (
            lambda kind: i.s_waitcnt(simm16={"k": 0xFC07, "l": 0x03F7, "d": 0xFC07}[kind])
        )  # fmt: skip
        add, carry = (i.s_add_co_u32, i.s_add_co_ci_u32) if gfx12 else (i.s_add_u32, i.s_addc_u32)
        lines = {
            "arguments": i.s_load_b128(s[4:7], s[0:1], soffset=null), "await arguments": wait("k"),
            "group": i.s_mul_i32(s[8], group, 2 * other), "place": i.v_lshlrev_b32_e32(v[1], 2, v[0]),
            "in": add(s[4], s[4], s[8]), "in high": carry(s[5], s[5], 0),
            "out": add(s[6], s[6], s[8]), "out high": carry(s[7], s[7], 0),
            "load": i.global_load_b32(v[2], **{"vaddr" if gfx12 else "addr": v[1:2] if gfx12 else v[1]}, saddr=s[4:5]),
            "await load": wait("l"),
            "add": i.v_add_nc_u32_e32(v[2], 1, v[2]),
            "write": i.ds_store_b32(addr=v[1], data0=v[2]), "await write": wait("d"),
            "barrier": i.s_barrier_signal(ssrc0=-1).to_bytes() + i.s_barrier_wait(simm16=0xFFFF).to_bytes()
            if gfx12 else i.s_barrier(),
            "turn": i.v_xor_b32_e32(v[3], other, v[1]), "read": i.ds_load_b32(v[4], addr=v[3]), "await read": wait("d"),
            "store": i.global_store_b32(**{"vaddr": v[3:4], "vsrc": v[4]} if gfx12 else {"addr": v[3], "data": v[4]}, saddr=s[6:7]),
        }  # fmt: skip
    return {**lines, "end": i.s_endpgm()}


def run(
    machine: str, lines: dict[str, Any], *, seed: int | None = None, lds: int | None = None, count: int | None = None,
) -> None:  # fmt: skip
    lanes = WAVE[machine]
    total = 2 * lanes * GROUPS
    device = Device(machine)
    source = device.buffer(np.arange(total if count is None else count, dtype=np.int32))
    target = device.buffer(np.zeros(total, np.int32), written=False)
    code = code_object(machine, list(lines.values()), lds=8 * lanes if lds is None else lds, lanes=lanes)
    device.launch(code, source, target, threads=2 * lanes, groups=GROUPS, seed=seed)
    np.testing.assert_array_equal(device.read(target, None), np.arange(total) + 1)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("machine", WAVE)
def test_the_right_kernel_passes_in_every_order(machine: str, seed: int | None) -> None:
    run(machine, exchange(machine), seed=seed)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("await arguments", "reads s4 before the scalar load that fills it was waited for"),
        ("await load", "reads v2 before the load that fills it was waited for"),
        ("await write", "comes to a barrier before its last store to LDS was waited for"),
        ("await read", "reads v4 before the LDS that fills it was waited for"),
        (
            "barrier",
            "of LDS, which wave . of the workgroup wrote with no barrier between|which wave . of the workgroup read",
        ),
        ("write", "what it stores comes from LDS that nobody wrote"),
        ("read", "what it stores comes from a register that nobody wrote .v4."),
        ("turn", "its address comes from a register that nobody wrote .v3."),
        ("group", "its address comes from a register that nobody wrote .s4."),
    ],
)
@pytest.mark.parametrize("machine", WAVE)
def test_a_line_that_is_missing_is_found(machine: str, line: str, message: str) -> None:
    lines = exchange(machine)
    del lines[line]
    with pytest.raises(qmlir.EmulationError, match=message):
        run(machine, lines)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("where", ["LDS", "memory"])
@pytest.mark.parametrize("machine", WAVE)
def test_lanes_of_a_wave_that_store_to_one_place(machine: str, where: str, same: bool) -> None:
    """One instruction stores, from each pair of lanes to one address, the same value or different ones."""
    i, lines, lanes = instructions(machine), exchange(machine), WAVE[machine]
    register = {"LDS": 1, "memory": 3}[where]
    fold = {"fold": i.v_and_b32_e32(i.v[register], -5, i.v[register])}
    if same:
        value = i.v[{"LDS": 2, "memory": 4}[where]]
        fold["same"] = i.v_mov_b32_e32(value, 7)
    if where == "LDS":  # each wave reads back what it wrote itself
        lines["turn"] = i.v_mov_b32_e32(i.v[3], i.v[1])
    at = list(lines).index({"LDS": "write", "memory": "store"}[where])
    lines = dict([*list(lines.items())[:at], *fold.items(), *list(lines.items())[at:]])
    device, total = Device(machine), 2 * lanes * GROUPS
    source, target = device.buffer(np.arange(total, dtype=np.int32)), device.buffer(np.zeros(total, np.int32))
    code = code_object(machine, list(lines.values()), lds=8 * lanes, lanes=lanes)
    if same:
        device.launch(code, source, target, threads=2 * lanes, groups=GROUPS)
        np.testing.assert_array_equal(device.read(target, None)[::2], 7)
        return
    message = {
        "LDS": "write different values to byte 0 of LDS",
        "memory": "store different values to byte .* of argument 1",
    }
    with pytest.raises(qmlir.EmulationError, match=f"lane 0: two lanes {message[where]}"):
        device.launch(code, source, target, threads=2 * lanes, groups=GROUPS)


@pytest.mark.parametrize("machine", WAVE)
def test_accesses_beyond_a_buffer_name_the_argument(machine: str) -> None:
    total = 2 * WAVE[machine] * GROUPS
    with pytest.raises(
        qmlir.EmulationError,
        match=f"4 bytes at byte {4 * total - 4} of argument 0 .*has {4 * total - 4} bytes: element {total - 1} of 4 bytes",
    ):
        run(machine, exchange(machine), count=total - 1)


@pytest.mark.parametrize("machine", WAVE)
def test_accesses_beyond_lds(machine: str) -> None:
    size = 8 * WAVE[machine]
    with pytest.raises(
        qmlir.EmulationError, match=f"it accesses 4 bytes at {size - 4} of the workgroup's {size - 4} bytes of LDS"
    ):
        run(machine, exchange(machine), lds=size - 4)


@pytest.mark.parametrize("machine", WAVE)
def test_memory_that_nobody_wrote(machine: str) -> None:
    """Copies of it stay unwritten, because kernels copy padding; an address that depends on it is an error."""
    i, lines, lanes = instructions(machine), exchange(machine), WAVE[machine]
    device = Device(machine)
    total = 2 * lanes * GROUPS
    source, target = (device.buffer(np.zeros(total, np.int32), written=False) for _ in range(2))
    code = code_object(machine, list(lines.values()), lds=8 * lanes, lanes=lanes)
    device.launch(code, source, target, threads=2 * lanes, groups=GROUPS)
    held = device.memory.find(target)
    assert held is not None
    assert held.written is not None
    assert not held.written.any()
    lines["turn"] = i.v_lshlrev_b32_e32(i.v[3], 2, i.v[2])
    code = code_object(machine, list(lines.values()), lds=8 * lanes, lanes=lanes)
    with pytest.raises(
        qmlir.EmulationError,
        match=r"its address comes from byte 0 of argument 0 \(element 0 of 4 bytes\), which nobody wrote",
    ):
        device.launch(code, source, target, threads=2 * lanes, groups=GROUPS)


def last_group_adds(machine: str) -> dict[str, Any]:
    """Named lines of `out[i] = sum(partial[group][i])`, computed by the last workgroup to arrive: each one counts
    itself after its stores."""
    i = instructions(machine)
    v, s = i.v, i.s
    size = 4 * WAVE[machine]
    if machine == "gfx942":
        known, stored = i.s_waitcnt(simm16=0xC07F), i.s_waitcnt(simm16=0x0F70)
        first, last = (
            i.s_load_dwordx4(s[4:7], s[0:1], offset=0, imm=1),
            i.s_load_dwordx2(s[8:9], s[0:1], offset=16, imm=1),
        )
        store, load, add = i.global_store_dword, i.global_load_dword, i.v_add_u32_e32
        count = i.global_atomic_add(v[6], v[0], v[5], saddr=s[6:7], sc0=1, sc1=1)
        one, all_lanes = i.s_mov_b64(i.EXEC, 1), i.s_mov_b64(i.EXEC, -1)
        caches = {"write back": i.buffer_wbl2(sc1=1), "invalidate": i.buffer_inv(sc1=1)}
        await_store = stored
        target = v[11]  # the field of s11 holds only the number 11
    else:
        known, stored = i.s_waitcnt(simm16=0xFC07), i.s_waitcnt(simm16=0x03F7)
        first, last = (
            i.s_load_b128(s[4:7], s[0:1], soffset=i.NULL),
            i.s_load_b64(s[8:9], s[0:1], offset=16, soffset=i.NULL),
        )
        store, load, add = i.global_store_b32, i.global_load_b32, i.v_add_nc_u32_e32
        count = i.global_atomic_add_u32(v[6], v[0], v[5], saddr=s[6:7], glc=1)
        one, all_lanes = i.s_mov_b32(i.EXEC_LO, 1), i.s_mov_b32(i.EXEC_LO, -1)
        caches = {"write back": b"", "invalidate": i.buffer_gl1_inv().to_bytes() + i.buffer_gl0_inv().to_bytes()}
        await_store, target = i.s_waitcnt_vscnt(sdst=i.NULL, simm16=0), s[11]
    end = i.s_endpgm()
    sums: dict[str, Any] = {"zero": i.v_mov_b32_e32(v[8], 0)}
    for group in range(GROUPS):
        sums |= {f"load {group}": load(v[7], addr=v[1], saddr=s[4:5], offset=group * size), f"await {group}": stored,
                 f"add {group}": add(v[8], v[7], v[8])}  # fmt: skip
    sums["out"] = store(addr=v[1], data=v[8], saddr=s[8:9])
    skip = sum(len(x if isinstance(x, bytes) else x.to_bytes()) for x in [caches["invalidate"], *sums.values()])
    return {
        "arguments": first, "more": last, "await arguments": known, "place": i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        "group": i.s_mul_i32(s[10], s[2], size), "partial": add(v[2], s[10], v[1]), "store": store(addr=v[2], data=v[0], saddr=s[4:5]),
        "write back": caches["write back"], "await store": await_store, "nothing": i.v_mov_b32_e32(v[0], 0),
        "increment": i.v_mov_b32_e32(v[5], 1), "one lane": one, "count": count, "await count": stored,
        "ticket": i.v_readfirstlane_b32_e32(target, v[6]), "all lanes": all_lanes, "last": i.s_cmp_lg_u32(s[11], GROUPS - 1),
        "skip": i.s_cbranch_scc1(simm16=skip // 4), "invalidate": caches["invalidate"], **sums, "end": end,
    }  # fmt: skip


def add_groups(machine: str, lines: dict[str, Any], seed: int | None = None) -> None:
    lanes, device = WAVE[machine], Device(machine)
    partial = device.buffer(np.zeros(GROUPS * lanes, np.int32), written=False)
    counter, out = device.buffer(np.zeros(1, np.int32)), device.buffer(np.zeros(lanes, np.int32), written=False)
    code = code_object(machine, list(lines.values()), lanes=lanes)
    device.launch(code, partial, counter, out, threads=lanes, groups=GROUPS, seed=seed)
    np.testing.assert_array_equal(device.read(out, None), GROUPS * np.arange(lanes))


@pytest.mark.parametrize("machine", ["gfx942", "gfx1100"])
def test_workgroups_that_wait_for_each_other(machine: str) -> None:
    for seed in (None, 0, 1, 2):
        add_groups(machine, last_group_adds(machine), seed)


@pytest.mark.parametrize("line", ["await store", "write back", "invalidate"])
@pytest.mark.parametrize("machine", ["gfx942", "gfx1100"])
def test_workgroups_that_do_not_wait(machine: str, line: str) -> None:
    lines = last_group_adds(machine)
    if not lines[line]:
        return  # gfx1100 has one L2
    if line == "await store":
        # On gfx942 the wait for the atomic's result waits for the stores too, but comes after the atomic.
        lines[line] = instructions(machine).s_nop(simm16=0)
    elif line == "invalidate":
        lines[line] = instructions(machine).s_nop(simm16=0).to_bytes() * (len(code_bytes(lines[line])) // 4)
    else:
        del lines[line]
    message = r"it reads byte \d+ of argument 0 .element \d+ of 4 bytes., which workgroup . stored, with no release and acquire"
    with pytest.raises(qmlir.EmulationError, match=message):
        add_groups(machine, lines)


def code_bytes(instruction: Any) -> bytes:
    return instruction if isinstance(instruction, bytes) else instruction.to_bytes()


@pytest.mark.parametrize("machine", WAVE)
def test_two_workgroups_that_store_to_one_place(machine: str) -> None:
    lines = exchange(machine)
    del lines["out"]
    with pytest.raises(qmlir.EmulationError, match=r"it stores to byte .* of argument 1 .* which workgroup . stored"):
        run(machine, lines)


def test_an_offset_to_a_negative_address_of_lds() -> None:
    """Addresses have 32 bits: LLVM puts into the offset the part that makes an address positive."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx2(s[4:5], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.s_mov_b32(i.M0, -1), i.v_add_u32_e32(v[2], -16, v[1]), i.ds_write_b32(addr=v[2], data0=v[0], offset0=16),
        i.s_waitcnt(simm16=0xC07F), i.ds_read_b32(vdst=v[3], addr=v[2], offset0=16), i.s_waitcnt(simm16=0xC07F),
        i.global_store_dword(addr=v[1], data=v[3], saddr=s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    np.testing.assert_array_equal(stored_by_gfx942(lines, "", lds=256), np.arange(64))


def test_an_atomic_on_memory_that_nobody_wrote() -> None:
    i = instructions("gfx942")
    lines = [
        i.s_load_dwordx2(i.s[4:5], i.s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.v_mov_b32_e32(i.v[1], 0),
        i.v_mov_b32_e32(i.v[2], 1), i.global_atomic_add(i.v[3], i.v[1], i.v[2], saddr=i.s[4:5]), i.s_endpgm(),
    ]  # fmt: skip
    device = Device("gfx942")
    device.launch(code_object("gfx942", lines), device.buffer(np.zeros(1, np.int32)), threads=64)
    with pytest.raises(qmlir.EmulationError, match=r"it changes byte 0 of argument 0 .*, which nobody wrote"):
        device.launch(code_object("gfx942", lines), device.buffer(np.zeros(1, np.int32), written=False), threads=64)


def test_a_word_in_which_a_buffer_ends() -> None:
    """It may be loaded and dropped, as IREE's kernels do at the end of an f16 row; using it as an address fails."""
    i = instructions("gfx942")
    v, s = i.v, i.s
    lines = [
        i.s_load_dwordx4(s[4:7], s[0:1], offset=0, imm=1), i.s_waitcnt(simm16=0xC07F), i.s_mov_b64(s[8:9], s[4:5]),
        i.s_movk_i32(s[10], 254), i.s_mov_b32(s[11], 0), i.v_lshlrev_b32_e32(v[1], 2, v[0]),
        i.buffer_load_dword(v[2], v[1], s[8:11], 0, offen=1), i.s_waitcnt(simm16=0x0F70),
        i.global_store_dword(addr=v[1], data=v[2], saddr=s[6:7]),
    ]  # fmt: skip
    device = Device("gfx942")
    source, target = device.buffer(np.arange(64, dtype=np.int32)), device.buffer(np.zeros(64, np.int32), written=False)
    device.launch(code_object("gfx942", [*lines, i.s_endpgm()]), source, target, threads=64)
    np.testing.assert_array_equal(device.read(target, None), [*range(63), 0])
    lines[-1] = i.global_store_dword(addr=v[2], data=v[1], saddr=s[6:7])
    with pytest.raises(qmlir.EmulationError, match="its address comes from a word that its buffer ends in"):
        device.launch(code_object("gfx942", [*lines, i.s_endpgm()]), source, target, threads=64)


def test_a_barrier_that_a_wave_does_not_reach() -> None:
    i = instructions("gfx942")
    lines = exchange("gfx942")
    # Waves whose first work item is not 0 end before the barrier.
    before = {
        "first": i.v_cmp_gt_u32_e32(64, i.v[0]), "which": i.s_cbranch_vccnz(simm16=1), "leave": i.s_endpgm(),
    }  # fmt: skip
    with pytest.raises(qmlir.EmulationError, match=r"wave 0 waits at a barrier .* that waves \[1\] never reach"):
        run(
            "gfx942",
            {**{k: lines[k] for k in ("arguments",)}, **before, **{k: x for k, x in lines.items() if k != "arguments"}},
        )


def test_a_store_to_lds_without_active_lanes() -> None:
    i, lines = instructions("gfx942"), exchange("gfx942")
    none = {"none": i.s_mov_b64(i.EXEC, 0), "store nothing": lines["write"], "all": i.s_mov_b64(i.EXEC, -1)}
    at = list(lines).index("write")
    run("gfx942", {**dict(list(lines.items())[:at]), **none, **dict(list(lines.items())[at:])})


def test_what_the_device_would_refuse() -> None:
    lines = exchange("gfx942")
    with pytest.raises(qmlir.EmulationError, match="needs 70000 bytes of LDS; gfx942 has 65536"):
        run("gfx942", lines, lds=70000)
    device = Device("gfx942")
    code = code_object("gfx942", list(lines.values()))
    with pytest.raises(qmlir.EmulationError, match="workgroups of 2048 work items; the device's limit is 1024"):
        device.launch(code, 0, 0, threads=2048)
    with pytest.raises(qmlir.EmulationError, match="the code object is for gfx942, the emulated device is a gfx950"):
        Device("gfx950").launch(code, 0, 0, threads=64)


def test_code_that_is_none() -> None:
    with pytest.raises(qmlir.EmulationError, match="is not an AMD GPU code object"):
        Device("gfx942").launch(b"PTX", 0, threads=64)
    unknown = code_object("gfx942", [b"\xff\xff\xff\xff"])
    with pytest.raises(qmlir.EmulationError, match="ffffffff at 0x200 is not a known instruction of gfx942"):
        Device("gfx942").launch(unknown, 0, threads=64)
