"""The interpreter detects faults of kernels: each test breaks one line of a correct kernel."""

# ruff: noqa: E501  (lines of PTX, rows of tables)

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from ptx.kernels import MULTIPLY, MULTIPLY_SHARED, TILES, WARPGROUP, WARPGROUP_SHARED, launch, operands
from ptx.program import interpret

import qmlir
from qmlir import TensorSpec
from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.instructions import PtxError
from qmlir.emulation.cuda.text import parse


def multiply(
    text: str = MULTIPLY, shared: int = MULTIPLY_SHARED, limit: int = 100_000
) -> tuple[Array, Array, dict[str, int]]:
    a, b, out, want = operands(16, 16, 32 * TILES)
    (_, _, got), report = launch(text, a, b, out, shared=shared, limit=limit)
    return got, want, dict(report.conflicts)


def warpgroup(text: str = WARPGROUP) -> tuple[Array, Array]:
    a, b, out, want = operands(64, 8, 32)
    (_, _, got), _ = launch(text, a, b, out, shared=WARPGROUP_SHARED)
    return got, want


def broken(text: str, old: str, new: str, count: int = 1) -> str:
    assert text.count(old) >= 1, old
    return text.replace(old, new, count)


def test_the_kernels_are_right() -> None:
    got, want, conflicts = multiply()
    assert (got == want).all()
    assert sum(conflicts.values()) == 0, conflicts
    got, want = warpgroup()
    assert (got == want).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cp.async.wait_group 0;", "", "read while a copy to it is in flight"),
        ("cp.async.wait_group 0;", "cp.async.wait_group 1;", "read while a copy to it is in flight"),
        ("cp.async.commit_group;\nmov", "mov", "read while a copy to it is in flight"),
        ("bar.sync 0;", "", "another warp may still write it"),
        ("xor.b32 %r24, %r22, 1024;", "mov.u32 %r24, %r22;", "read while a copy to it is in flight"),
        ("@%p2 bra LAST;", "", "out of bounds: 16 bytes at 2048 of argument 0, which has 2048"),
        ("[%d4], 16;", "[%d4+4], 16;", "misaligned: 16 bytes"),
        ("[%r10], [%d4]", "[%r10+8], [%d4]", "misaligned: 16 bytes at 8 of shared memory"),
        ("[%r26+512]", "[%r26+2048]", "out of bounds: 16 bytes at 2"),
        ("st.global.v2.b32 [%d7],", "st.global.v2.b32 [%d7+4],", "misaligned: 8 bytes at 4 of argument 2"),
        ("bar.sync 0;", "setp.lt.u32 %p3, %r3, 16;\n@%p3 bar.sync 0;", "divergent barrier: 16 of 32 lanes"),
        ("bar.sync 0;", "setp.eq.u32 %p3, %r2, 0;\n@%p3 bar.sync 0;", "another warp may still write it"),
        ("LOOP:", "LOOP:\nsetp.eq.u32 %p3, %r2, 0;\n@%p3 bar.sync 1;", "deadlock: 32 threads of block 0 wait at barrier 1"),
        ("ldmatrix.sync.aligned.m8n8.x2", "@%p1 ldmatrix.sync.aligned.m8n8.x2", "%r44 is read before it is written"),
        ("mma.sync.aligned.m16n8k32", "mma.sync.aligned.m16n8k64", "4 registers of A for m16n8k64"),
        ("shl.b32 %r51, %r51, 1;", "mov.u32 %r51, 0;", "two threads write different values to byte"),
        ("cp.async.cg.shared.global [%r24], [%d6], 16;", "cp.async.bogus [%r24], [%d6], 16;", "is not interpreted"),
        ("xor.b32 %r9, %r5, %r8;", "frobnicate.b32 %r9, %r5;", "does not know the instruction frobnicate"),
    ],
)  # fmt: skip
def test_broken_multiply(old: str, new: str, message: str | None) -> None:
    text = broken(MULTIPLY, old, new)
    if message is None:
        got, want, _ = multiply(text)
        assert (got != want).any()
        return
    with pytest.raises(PtxError, match=message.replace("(", r"\(")) as caught:
        multiply(text)
    assert "line " in str(caught.value)


def test_an_overwritten_stage_is_found() -> None:
    # Both tiles use one stage, and the copy to it precedes the barrier: another warp may still read the stage.
    text = broken(MULTIPLY, "xor.b32 %r22, %r22, 1024;", "")
    text = broken(text, "xor.b32 %r24, %r22, 1024;", "mov.u32 %r24, %r22;")
    text = broken(text, "cp.async.wait_group 0;\nbar.sync 0;", "")
    text = broken(text, "LAST:", "cp.async.wait_group 0;\nbar.sync 0;\nLAST:")
    with pytest.raises(PtxError, match=r"another warp may still (read|write) it|copy to it is in flight"):
        multiply(text)


def test_without_a_swizzle_banks_are_met_twice() -> None:
    text = MULTIPLY
    for line in ("xor.b32 %r9, %r5, %r8;", "xor.b32 %r14, %r14, %r15;", "xor.b32 %r19, %r19, %r20;"):
        target, source = line.split()[1].rstrip(","), line.split()[2].rstrip(",")
        text = broken(text, line, f"mov.u32 {target}, {source};")
    got, want, conflicts = multiply(text)
    assert (got == want).all()
    assert {t.split(": ")[1].split(".")[0]: n for t, n in conflicts.items() if n} == {"ldmatrix": TILES * 4}


def test_a_wrong_swizzle_is_a_wrong_result() -> None:
    got, want, _ = multiply(broken(MULTIPLY, "xor.b32 %r19, %r19, %r20;", ""))
    assert (got != want).any()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fence.proxy.async.shared::cta;", "", "without fence.proxy.async"),
        ("bar.sync 0;", "", "another warp may still write it"),
        ("wgmma.fence.sync.aligned;", "", "no wgmma.fence"),
        ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned;\nmov.u32 %r20, 0;", "written after the last wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", "", "written while an asynchronous product may still read it"),
        ("wgmma.wait_group.sync.aligned 0;\nbar.sync 0;\nst.shared.b32 [%r8], %r1;", "", "has not been waited for"),
        ("wgmma.wait_group.sync.aligned 0;\nbar.sync 0;", "wgmma.wait_group.sync.aligned 0;", "another warp may still read"),
        ("wgmma.commit_group.sync.aligned;", "", "written while an asynchronous product may still read it"),
        ("add.u64 %d8, %d7, 128;", "add.u64 %d8, %d7, 132;", "starts at a multiple of 256"),
        ("add.u64 %d8, %d7, 128;", "add.u64 %d8, %d7, 144;", "out of bounds"),
    ],
)  # fmt: skip
def test_broken_warpgroup(old: str, new: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        warpgroup(broken(WARPGROUP, old, new))


def test_a_wrong_wgmma_swizzle_is_a_wrong_result() -> None:
    got, want = warpgroup(broken(WARPGROUP, "xor.b32 %r9, %r9, %r3;", "mov.u32 %r9, %r3;"))
    assert (got != want).any()


def test_an_endless_loop_ends() -> None:
    multiply(limit=5_000)
    with pytest.raises(PtxError, match="no end after"):
        multiply(broken(MULTIPLY, "mov.u32 %r21, %r23;", ""), limit=5_000)


@pytest.mark.slow
def test_broken_products_of_one_byte_floats() -> None:
    """A built-in fp8 kernel on `wgmma`, without one of the fences, waits and barriers it needs or with a wrong type."""
    rng = np.random.default_rng(5)
    lhs, rhs = (rng.integers(-4, 5, (m, 512)).astype(ml_dtypes.float8_e4m3fn) for m in (70, 72))
    made = interpret(qmlir.ops.scaled_matmul.compile(
        TensorSpec((70, 512), "e4m3"), rhs, rhs_transposed=True, target="cuda:sm_90a",
        choice={"strategy": "wgmma-fp8-fast"}))  # fmt: skip
    text, want = made.compiled.text, lhs.astype(np.float32) @ rhs.astype(np.float32).T
    assert (made.main(lhs) == want).all()
    first = "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"
    for old, new, message in (
        ("wgmma.fence.sync.aligned;", "", "no wgmma.fence"),
        ("wgmma.wait_group.sync.aligned 0;", "", "belongs to a wgmma that has not been waited for"),
        ("wgmma.wait_group.sync.aligned 1;", "", "belongs to a wgmma that has not been waited for"),
        ("bar.sync \t0;", "", "another warp may still write it"),
        ("cp.async.wait_group \t5;", "", "read while a copy to it is in flight"),
        (first, first.replace("e4m3.e4m3", "e5m2.e4m3"), None),
        ("setp.ne.b32 p, 0, 0;", "setp.ne.b32 p, 1, 0;", "is read before it is written"),  # reads the accumulators
    ):
        made.compiled = replace(made.compiled, ptx=parse(broken(text, old, new, -1)))
        if message is None:  # the change is not a fault, but gives a wrong result
            assert (made.main(lhs) != want).any(), new
            continue
        with pytest.raises(PtxError, match=message):
            made.main(lhs)
