"""What an emulated CUDA device finds: each kernel is right, and then broken in one place."""

# ruff: noqa: E501  (lines of PTX)

from __future__ import annotations

import numpy as np
import pytest
from emulation.ptx_programs import Device
from ptx.kernels import HEADER, MULTIPLY, MULTIPLY_SHARED, TILES, WARPGROUP, WARPGROUP_SHARED, kernel, operands

import qmlir
from qmlir.targets import resolve

# out[i] = in[i] + 1, each block through shared memory, in the order that the other warp wrote.
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
        ("add.s32 %r4, %r4, 1;", "add.s32 %r4, %r20, 1;", "%r20 is read, and nobody has written it"),
        ("add.s32 %r4, %r4, 1;", "@%p1 add.s32 %r4, %r4, 1;", "%p1 is read, and nobody has written it"),
        ("ld.global.b32 %r4,", "setp.lt.u32 %p1, %r1, 9;\n@%p1 ld.global.b32 %r4,", r"%r4 is read, and nobody has written it \(thread 9 of block \(0, 0, 0\)\)"),
        ("xor.b32 %r8, %r6, 128;", "and.b32 %r8, %r6, 124;\nadd.u32 %r5, %r5, 64;\nadd.u32 %r8, %r8, 64;\n", None),
        ("st.shared.b32 [%r7], %r4;", "setp.lt.u32 %p1, %r1, 48;\n@%p1 st.shared.b32 [%r7], %r4;", "byte 192 of shared memory is read, and nobody has written it"),
        # Bounds.
        ("ld.global.b32 %r4, [%d4];", "ld.global.b32 %r4, [%d4+4];", "out of bounds: 4 bytes at 768 of argument 0, which has 768: element 192 of 4 bytes"),
        ("st.global.b32 [%d6], %r10;", "st.global.b32 [%d6+-512], %r10;", r"out of bounds: 4 bytes at -\d+ of argument 1, which has 768|in no buffer"),
        ("add.u64 %d4, %d1, %d3;", "mov.u64 %d4, %d3;", "the address 0x0 is in no buffer of the device"),
        ("add.u32 %r9, %r5, %r8;", "add.u32 %r9, %r5, %r8;\nadd.u32 %r9, %r9, 4;", "out of bounds: 4 bytes at 256 of shared memory, which has 256"),
        # Order.
        ("bar.sync 0;", "", "another warp may still write it|nobody has written it"),
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
        qmlir.EmulationError, match=r"byte 0 of argument 0 \(element 0 of 4 bytes\) is read, and nobody has written it"
    ):
        exchange(written=False)


def test_a_missing_wait_is_found_in_device_memory_too() -> None:
    device = Device()
    a, b, out, want = operands(16, 16, 32 * TILES)
    at = [device.buffer(x) for x in (a, b, out)]
    device.launch(MULTIPLY, *at, threads=64, shared=MULTIPLY_SHARED)
    assert (device.read(at[2], out) == want).all()
    with pytest.raises(qmlir.EmulationError, match="read while a copy to it is still on its way"):
        device.launch(MULTIPLY.replace("cp.async.wait_group 0;", ""), *at, threads=64, shared=MULTIPLY_SHARED)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_the_order_of_a_warpgroups_products(seed: int | None) -> None:
    """Right in every order of the warps; each line that orders shared memory and products is missed."""
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


def test_barriers_in_memory_are_refused_by_name() -> None:
    """No kernel of ours or IREE's has one: a program with them is not executed as if they were not there."""
    text = kernel("mov.u32 %r1, smem;\nmbarrier.init.shared.b64 [%r1], 1;", 0, 32)
    with pytest.raises(qmlir.EmulationError, match="mbarrier"):
        Device().launch(text, shared=64)


@pytest.mark.parametrize(
    ("target", "body", "launch", "message"),
    [
        ("cuda:sm_90a", "", {"threads": 2048}, "refuses a block of 2048x1x1"),
        ("cuda:sm_90a", "", {"threads": 64}, "blocks of 64 threads: the kernel is compiled for 32"),
        ("cuda:sm_90a", "", {"shared": 228 * 1024}, "refuses 233472 bytes of shared memory in a block: at most"),
        ("cuda:sm_120", "", {}, "refuses PTX for sm_90a on a device of sm_120"),
        ("cuda:sm_80", "", {}, "refuses PTX for sm_90a on a device of sm_80"),
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


def test_too_much_static_shared_memory() -> None:
    text = (
        kernel("", 0, 32)
        .replace(HEADER, HEADER + ".shared .align 4 .b8 big[50000];\n")
        .replace("ret;", "mov.u32 %r1, big;\nret;")
    )
    with pytest.raises(qmlir.EmulationError, match="refuses 50000 bytes of static shared memory"):
        Device().launch(text)
    assert resolve("cuda:sm_90a").shared_memory > 50000


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
    # Without its swizzle, four pairs of rows of this one meet in a bank.
    a, b, out, _ = operands(16, 16, 32 * TILES)
    plain = MULTIPLY.replace("xor.b32 %r14, %r14, %r15;", "").replace("xor.b32 %r9, %r5, %r8;", "mov.u32 %r9, %r5;")
    at = [device.buffer(x) for x in (a, b, out)]
    right = device.launch(MULTIPLY, *at, threads=64, shared=MULTIPLY_SHARED)
    assert (right.bank_conflicts, right.instructions["matrix"]) == (0, 2 * TILES)
    assert device.launch(plain, *at, threads=64, shared=MULTIPLY_SHARED).bank_conflicts > 0
