"""Faults that an emulated CUDA device finds: each kernel runs right, and is then broken in one place."""

# ruff: noqa: E501  (lines of PTX)

from __future__ import annotations

import numpy as np
import pytest
from emulation.ptx_programs import Device
from ptx.kernels import HEADER, MULTIPLY, MULTIPLY_SHARED, TILES, WARPGROUP, WARPGROUP_SHARED, kernel, operands

import qmlir
from qmlir.targets import resolve

# out[i] = in[i] + 1 through shared memory: each warp reads what the other warp of its block wrote.
EXCHANGE = kernel(
    """
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
shl.b32 %r3, %r2, 6;
add.u32 %r3, %r3, %r1;
mul.wide.u32 %d3, %r3, 4;
add.u64 %d4, %d1, %d3;
ld.global.b32 %r4, [%d4];
add.s32 %r4, %r4, 1;
mov.u32 %r5, smem;
shl.b32 %r6, %r1, 2;
add.u32 %r7, %r5, %r6;
st.shared.b32 [%r7], %r4;
bar.sync 0;
xor.b32 %r8, %r6, 128;
add.u32 %r9, %r5, %r8;
ld.shared.b32 %r10, [%r9];
xor.b32 %r11, %r3, 32;
mul.wide.u32 %d5, %r11, 4;
add.u64 %d6, %d2, %d5;
st.global.b32 [%d6], %r10;
""",
    2,
    64,
)
BLOCKS, SHARED = 3, 256


def exchange(text: str = EXCHANGE, seed: int | None = None, *, count: int = 64 * BLOCKS, written: bool = True) -> None:
    device = Device()
    x = np.arange(count, dtype=np.int32)
    source, target = device.buffer(x, written), device.buffer(np.zeros(64 * BLOCKS, np.int32), written=False)
    device.launch(text, source, target, threads=64, blocks=BLOCKS, shared=SHARED, seed=seed)
    assert (device.read(target, np.zeros(64 * BLOCKS, np.int32)) == np.arange(64 * BLOCKS) + 1).all()


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_right_kernel_passes_in_every_order(seed: int | None) -> None:
    exchange(seed=seed)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # Registers, shared memory and device memory that nobody has written.
        ("add.s32 %r4, %r4, 1;", "add.s32 %r4, %r20, 1;", "%r20 is read before it is written"),
        ("add.s32 %r4, %r4, 1;", "@%p1 add.s32 %r4, %r4, 1;", "%p1 is read before it is written"),
        ("ld.global.b32 %r4,", "setp.lt.u32 %p1, %r1, 9;\n@%p1 ld.global.b32 %r4,", r"%r4 is read before it is written \(thread 9 of block \(0, 0, 0\)\)"),
        ("xor.b32 %r8, %r6, 128;", "and.b32 %r8, %r6, 124;\nadd.u32 %r5, %r5, 64;\nadd.u32 %r8, %r8, 64;\n", None),
        ("st.shared.b32 [%r7], %r4;", "setp.lt.u32 %p1, %r1, 48;\n@%p1 st.shared.b32 [%r7], %r4;", "byte 192 of shared memory is read before it is written"),
        # Bounds.
        ("ld.global.b32 %r4, [%d4];", "ld.global.b32 %r4, [%d4+4];", "out of bounds: 4 bytes at 768 of argument 0, which has 768: element 192 of 4 bytes"),
        ("st.global.b32 [%d6], %r10;", "st.global.b32 [%d6+-512], %r10;", r"out of bounds: 4 bytes at -\d+ of argument 1, which has 768|in no buffer"),
        ("add.u64 %d4, %d1, %d3;", "mov.u64 %d4, %d3;", "the address 0x0 is in no buffer of the device"),
        ("add.u32 %r9, %r5, %r8;", "add.u32 %r9, %r5, %r8;\nadd.u32 %r9, %r9, 4;", "out of bounds: 4 bytes at 256 of shared memory, which has 256"),
        # Order.
        ("bar.sync 0;", "", "another warp may still write it|read before it is written"),
        ("bar.sync 0;", "setp.lt.u32 %p1, %r1, 40;\n@%p1 bar.sync 0;", "divergent barrier: 8 of 32 lanes"),
        ("bar.sync 0;", "setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 1, 64;\n@!%p1 bar.sync 0;", "deadlock"),
        ("xor.b32 %r11, %r3, 32;", "and.b32 %r11, %r3, 31;", "two workgroups|written by two|different values|another warp"),
    ],
)  # fmt: skip
def test_broken_kernels_are_found(old: str, new: str, message: str | None) -> None:
    assert EXCHANGE.count(old) == 1
    if message is None:
        with pytest.raises((AssertionError, qmlir.EmulationError)):
            exchange(EXCHANGE.replace(old, new))
        return
    with pytest.raises(qmlir.EmulationError, match=message) as caught:
        exchange(EXCHANGE.replace(old, new))
    assert str(caught.value).startswith("cuda:sm_90a: kernel k: ")


def test_unwritten_device_memory_is_found() -> None:
    with pytest.raises(
        qmlir.EmulationError, match=r"byte 0 of argument 0 \(element 0 of 4 bytes\) is read before it is written"
    ):
        exchange(written=False)


def test_a_missing_wait_is_found_in_device_memory_too() -> None:
    device = Device()
    a, b, out, want = operands(16, 16, 32 * TILES)
    at = [device.buffer(x) for x in (a, b, out)]
    device.launch(MULTIPLY, *at, threads=64, shared=MULTIPLY_SHARED)
    assert (device.read(at[2], out) == want).all()
    with pytest.raises(qmlir.EmulationError, match="read while a copy to it is in flight"):
        device.launch(MULTIPLY.replace("cp.async.wait_group 0;", ""), *at, threads=64, shared=MULTIPLY_SHARED)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_the_order_of_a_warpgroups_products(seed: int | None) -> None:
    """The kernel is right in every order of the warps; removing any line that orders them is found."""
    device = Device()
    a, b, out, want = operands(64, 8, 32)
    at = [device.buffer(x) for x in (a, b, out)]
    device.launch(WARPGROUP, *at, threads=128, shared=WARPGROUP_SHARED, seed=seed)
    assert (device.read(at[2], out) == want).all()
    for line, message in (
        ("fence.proxy.async.shared::cta;", "without fence.proxy.async"),
        ("wgmma.fence.sync.aligned;", "no wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", "while an asynchronous product may still read it|has not been waited for"),
    ):
        assert line in WARPGROUP
        with pytest.raises(qmlir.EmulationError, match=message):
            device.launch(WARPGROUP.replace(line, "", 1), *at, threads=128, shared=WARPGROUP_SHARED, seed=seed)


# EXCHANGE with an mbarrier in shared memory, after the values: thread 0 initialises it, all arrive, all wait.
WITH_MBARRIER = EXCHANGE.replace(
    "st.shared.b32 [%r7], %r4;\nbar.sync 0;",
    """
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r5+256], 64;
bar.sync 0;
st.shared.b32 [%r7], %r4;
mbarrier.arrive.shared.b64 %d7, [%r5+256];
wait:
mbarrier.try_wait.shared.b64 %p2, [%r5+256], %d7;
@!%p2 bra wait;
""",
)
ROUND = "mbarrier.arrive.shared.b64 %d7, [%r5+256];\nwait:"


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        # A wait for parity; a phase before, whose arrivals return no state; fewer threads from phase 2 on; a count.
        ("try_wait.shared.b64 %p2, [%r5+256], %d7", "test_wait.parity.shared.b64 %p2, [%r5+256], 0"),
        (ROUND, "mbarrier.arrive.shared.b64 _, [%r5+256];\nfirst:\nmbarrier.try_wait.parity.shared.b64 %p2, [%r5+256], 0;\n@!%p2 bra first;\n" + ROUND),
        (ROUND, "setp.ge.u32 %p3, %r1, 32;\n@%p3 mbarrier.arrive_drop.shared.b64 %d7, [%r5+256];\n@!%p3 mbarrier.arrive.shared.b64 %d7, [%r5+256];\nwait:"),
        ("try_wait.shared.b64 %p2, [%r5+256], %d7;", "try_wait.shared.b64 %p2, [%r5+256], %d7;\nmbarrier.pending_count.b64 %r40, %d7;\nadd.u32 %r40, %r40, 0;"),
    ],
)  # fmt: skip
def test_barriers_in_shared_memory(old: str, new: str, seed: int | None) -> None:
    assert not old or WITH_MBARRIER.count(old) == 1
    through_mbarrier(WITH_MBARRIER.replace(old, new) if old else WITH_MBARRIER, seed)


def through_mbarrier(text: str, seed: int | None = None) -> None:
    device = Device()
    source = device.buffer(np.arange(64 * BLOCKS, dtype=np.int32))
    target = device.buffer(np.zeros(64 * BLOCKS, np.int32), written=False)
    device.launch(text, source, target, threads=64, blocks=BLOCKS, shared=SHARED + 8, seed=seed)
    assert (device.read(target, np.zeros(64 * BLOCKS, np.int32)) == np.arange(64 * BLOCKS) + 1).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@!%p2 bra wait;", "", "another warp may still write it|read before it is written"),
        ("mbarrier.arrive.shared", "mbarrier.arrive.relaxed.cta.shared", "another warp may still write it"),
        ("try_wait.shared", "try_wait.relaxed.cta.shared", "another warp may still write it"),
        ("[%r5+256], 64;", "[%r5+256], 63;", "deadlock: 1 threads of block . wait at the mbarrier at byte 256|another warp may still write it"),
        ("[%r5+256], 64;", "[%r5+256], 65;", r"deadlock: 64 threads of block 0 wait at the mbarrier at byte 256 \(line \[30\]\), the others have ended"),
        ("mbarrier.arrive.shared.b64 %d7, [%r5+256];", "mbarrier.arrive.shared.b64 %d7, [%r5+256], 65;", "65 threads arrive at an mbarrier whose phase lacks 64"),
        ("[%r5+256], 64;", "[%r5+256], 0;", "an mbarrier of 0 arrivals"),
        ("[%r5+256], 64;\nbar.sync 0;", "[%r5+256], 64;", "no barrier orders them|read before it is written"),
        ("@%p1 mbarrier.init.shared.b64 [%r5+256], 64;", "@%p1 st.shared.b64 [%r5+256], 0;", "byte 256 of shared memory is not an mbarrier: nobody has initialised it"),
        ("mbarrier.arrive.shared.b64 %d7,", "mbarrier.arrive.noComplete.shared.b64 %d7,", "noComplete ends the phase"),
        ("mbarrier.arrive.shared.b64 %d7,", "mbarrier.arrive.expect_tx.shared.b64 %d7,", "is not interpreted"),
    ],
)  # fmt: skip
def test_broken_barriers_in_shared_memory_are_found(old: str, new: str, message: str) -> None:
    assert WITH_MBARRIER.count(old) == 1
    with pytest.raises(qmlir.EmulationError, match=message):
        through_mbarrier(WITH_MBARRIER.replace(old, new))


# out[i] = in[i ^ 32]: copies that an mbarrier in shared memory tracks.
TRACKED = kernel(
    """
mov.u32 %r1, %tid.x;
mov.u32 %r5, smem;
shl.b32 %r6, %r1, 2;
cvt.u64.u32 %d3, %r6;
add.u64 %d4, %d1, %d3;
add.u64 %d6, %d2, %d3;
add.u32 %r7, %r5, %r6;
xor.b32 %r8, %r6, 128;
add.u32 %r9, %r5, %r8;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r5+256], 64;
bar.sync 0;
cp.async.ca.shared.global [%r7], [%d4], 4;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r5+256];
wait:
mbarrier.try_wait.parity.shared.b64 %p2, [%r5+256], 0;
@!%p2 bra wait;
ld.shared.b32 %r10, [%r9];
st.global.b32 [%d6], %r10;
""",
    2,
    64,
)


def tracked(text: str, seed: int | None = None) -> None:
    device = Device()
    source = device.buffer(np.arange(64, dtype=np.int32))
    target = device.buffer(np.zeros(64, np.int32), written=False)
    device.launch(text, source, target, threads=64, shared=SHARED + 8, seed=seed)
    assert (device.read(target, np.zeros(64, np.int32)) == (np.arange(64) ^ 32)).all()


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_copies_that_a_barrier_in_shared_memory_tracks(seed: int | None) -> None:
    tracked(TRACKED, seed)
    arrives = "cp.async.mbarrier.arrive.shared.b64 [%r5+256];\nmbarrier.arrive.shared.b64 _, [%r5+256];"
    tracked(TRACKED.replace("cp.async.mbarrier.arrive.noinc.shared.b64 [%r5+256];", arrives), seed)
    with pytest.raises(qmlir.EmulationError, match=r"a copy to it is in flight|read before it is written"):
        tracked(TRACKED.replace("@!%p2 bra wait;", ""), seed)
    untracked = "mbarrier.arrive.shared.b64 _, [%r5+256];"
    with pytest.raises(qmlir.EmulationError, match=r"a copy to it is in flight|read before it is written"):
        tracked(TRACKED.replace("cp.async.mbarrier.arrive.noinc.shared.b64 [%r5+256];", untracked), seed)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_copies_of_a_phase_that_nobody_waited_for(seed: int | None) -> None:
    again = "bar.sync 0;\nmbarrier.arrive.shared.b64 _, [%r5+256];\nwait:"
    tracked(TRACKED.replace("wait:", again, 1).replace("[%r5+256], 0;", "[%r5+256], 1;"), seed)


@pytest.mark.parametrize(
    ("target", "body", "launch", "message"),
    [
        ("cuda:sm_90a", "", {"threads": 2048}, "refuses a block of 2048x1x1"),
        ("cuda:sm_90a", "", {"threads": 64}, "blocks of 64 threads: the kernel is compiled for 32"),
        ("cuda:sm_90a", "", {"shared": 228 * 1024}, "refuses 233472 bytes of shared memory in a block: at most"),
        ("cuda:sm_120", "", {}, "refuses PTX for sm_90a on a device of sm_120"),
        ("cuda:sm_80", "", {}, "refuses PTX for sm_90a on a device of sm_80"),
        ("cuda:sm_120a", "", {}, "refuses PTX for sm_90a on a device of sm_120a"),
    ],
)
def test_limits_of_the_device(target: str, body: str, launch: dict[str, int], message: str) -> None:
    with pytest.raises(qmlir.EmulationError, match=message):
        Device(target).launch(kernel(body, 0, 32), **launch)


def test_instructions_that_the_architecture_lacks() -> None:
    text = kernel("mov.u32 %r1, 0;\nredux.sync.add.s32 %r2, %r1, -1;\nelect.sync %r3|%p1, -1;", 0, 32)
    Device().launch(text)
    old = text.replace("sm_90a", "sm_80")
    with pytest.raises(qmlir.EmulationError, match="elect needs sm_90, the kernel is compiled for sm_80"):
        Device("cuda:sm_80").launch(old)
    Device("cuda:sm_80").launch(old.replace("elect.sync %r3|%p1, -1;", ""))


def test_features_of_another_architecture() -> None:
    """`sm_90a` and `sm_120a` have instructions of their own."""
    wgmma = kernel("wgmma.fence.sync.aligned;", 0, 128).replace("sm_90a", "sm_120a")
    with pytest.raises(qmlir.EmulationError, match="wgmma needs sm_90a, the kernel is compiled for sm_120a"):
        Device("cuda:sm_120a").launch(wgmma, threads=128)
    kinds = "kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    four = "{%r1, %r1, %r1, %r1}"
    line = f"mma.sync.aligned.m16n8k32.row.col.{kinds} {{%r2, %r3, %r4, %r5}}, {four}, {{%r1, %r1}}, {four}, %r1, {{0, 0}}, "
    text = kernel(f"mov.u32 %r1, 0;\n{line}%r1, {{0, 0}};", 0, 32)
    with pytest.raises(qmlir.EmulationError, match="mma needs sm_120a, the kernel is compiled for sm_120"):
        Device("cuda:sm_120a").launch(text.replace("sm_90a", "sm_120"))
    Device("cuda:sm_120a").launch(text.replace("sm_90a", "sm_120a"))


def test_too_much_static_shared_memory() -> None:
    text = (
        kernel("", 0, 32)
        .replace(HEADER, HEADER + ".shared .align 4 .b8 big[50000];\n")
        .replace("ret;", "mov.u32 %r1, big;\nret;")
    )
    with pytest.raises(qmlir.EmulationError, match="refuses 50000 bytes of static shared memory"):
        Device().launch(text)
    assert resolve("cuda:sm_90a").capabilities.shared_memory > 50000


def test_counts() -> None:
    device = Device()
    x = np.arange(64 * BLOCKS, dtype=np.int32)
    counts = device.launch(EXCHANGE, device.buffer(x), device.buffer(x), threads=64, blocks=BLOCKS, shared=SHARED)
    assert (counts.bytes_read, counts.bytes_written) == (x.nbytes, x.nbytes)
    assert counts.shared_bytes == 2 * x.nbytes
    assert counts.bank_conflicts == 0
    warps = 2 * BLOCKS
    assert counts.instructions["memory"] == 2 * warps
    assert counts.instructions["shared"] == 2 * warps
    assert counts.instructions["wait"] == warps
    # Without its swizzle, four pairs of rows of this kernel conflict in a bank.
    a, b, out, _ = operands(16, 16, 32 * TILES)
    plain = MULTIPLY.replace("xor.b32 %r14, %r14, %r15;", "").replace("xor.b32 %r9, %r5, %r8;", "mov.u32 %r9, %r5;")
    at = [device.buffer(x) for x in (a, b, out)]
    right = device.launch(MULTIPLY, *at, threads=64, shared=MULTIPLY_SHARED)
    assert (right.bank_conflicts, right.instructions["matrix"]) == (0, 2 * TILES)
    assert device.launch(plain, *at, threads=64, shared=MULTIPLY_SHARED).bank_conflicts > 0
