"""Small correct PTX kernels for the tests of the interpreter, which break them one line at a time."""

# ruff: noqa: E501  (lines of PTX, rows of tables)

from __future__ import annotations

import numpy as np

from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.grid import run_grid
from qmlir.emulation.cuda.machine import PtxReport
from qmlir.emulation.cuda.memory import GlobalMemory
from qmlir.emulation.cuda.text import parse

HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
REGISTERS = ".reg .pred %p<20>; .reg .b16 %h<40>; .reg .b32 %r<80>; .reg .b64 %d<40>;\n"


def kernel(body: str, parameters: int, threads: int) -> str:
    """Return a module with one entry `k` that loads its `parameters` pointers into %d1, %d2, ... first."""
    names = [f"k_{i}" for i in range(1, parameters + 1)]
    declared = ", ".join(f".param .u64 {n}" for n in names)
    loads = "".join(f"ld.param.u64 %d{i}, [{n}];\n" for i, n in enumerate(names, 1))
    return f"{HEADER}.visible .entry k({declared})\n.reqntid {threads}, 1, 1\n{{\n{REGISTERS}{loads}{body}\nret;\n}}\n"


def launch(
    text: str, *arrays: Array, grid: tuple[int, int, int] = (1, 1, 1), shared: int = 0, limit: int = 100_000
) -> tuple[list[Array], PtxReport]:
    """Run the only entry on copies of the arrays. Returns the contents of the copies afterwards, and the report."""
    module = parse(text)
    (entry,) = module.entries.values()
    memory = GlobalMemory()
    addresses = [memory.add(f"argument {i}", a, writable=True) for i, a in enumerate(arrays)]
    report = run_grid(module, entry, grid, addresses, memory, dynamic_shared=shared, limit=limit)
    return [memory.content(at).view(a.dtype).reshape(a.shape) for at, a in zip(addresses, arrays, strict=True)], report


# D[16, 16] = A[16, 32 T] * B[16, 32 T]^T in s8, two warps of 8 columns each, two stages of asynchronous copies. Rows of
# 32 bytes in shared memory; rows 4 to 7 of every 8 have their halves swapped, so that ldmatrix accesses each bank once.
TILES = 4
MULTIPLY_SHARED = 2048
MULTIPLY = kernel(
    f"""
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;           // warp: 0 copies A, 1 copies B
and.b32 %r3, %r1, 31;
shr.u32 %r4, %r3, 1;           // row
and.b32 %r5, %r3, 1;           // half of the row
setp.eq.u32 %p1, %r2, 0;
selp.b64 %d4, %d1, %d2, %p1;
mul.lo.u32 %r6, %r4, {32 * TILES};
shl.b32 %r7, %r5, 4;
add.u32 %r6, %r6, %r7;
cvt.u64.u32 %d5, %r6;
add.u64 %d4, %d4, %d5;         // source
shr.u32 %r8, %r4, 2;
and.b32 %r8, %r8, 1;
xor.b32 %r9, %r5, %r8;         // swizzle of the target
shl.b32 %r9, %r9, 4;
shl.b32 %r10, %r4, 5;
add.u32 %r10, %r10, %r9;
shl.b32 %r11, %r2, 9;
add.u32 %r10, %r10, %r11;
mov.u32 %r12, smem;
add.u32 %r10, %r10, %r12;      // target in stage 0
and.b32 %r13, %r3, 15;         // row of A that this lane points at
shr.u32 %r14, %r3, 4;
shr.u32 %r15, %r13, 2;
and.b32 %r15, %r15, 1;
xor.b32 %r14, %r14, %r15;      // swizzle of A
shl.b32 %r14, %r14, 4;
shl.b32 %r16, %r13, 5;
add.u32 %r16, %r16, %r14;
add.u32 %r16, %r16, %r12;
and.b32 %r17, %r3, 7;          // row of B
shl.b32 %r18, %r2, 3;
add.u32 %r18, %r18, %r17;
shr.u32 %r19, %r3, 3;
and.b32 %r19, %r19, 1;
shr.u32 %r20, %r18, 2;
and.b32 %r20, %r20, 1;
xor.b32 %r19, %r19, %r20;      // swizzle of B
shl.b32 %r19, %r19, 4;
shl.b32 %r18, %r18, 5;
add.u32 %r18, %r18, %r19;
add.u32 %r18, %r18, %r12;
mov.u32 %r30, 0; mov.u32 %r31, 0; mov.u32 %r32, 0; mov.u32 %r33, 0;
cp.async.cg.shared.global [%r10], [%d4], 16;
cp.async.commit_group;
mov.u32 %r21, 0;               // tile
mov.u32 %r22, 0;               // offset of its stage
LOOP:
cp.async.wait_group 0;
bar.sync 0;
add.u32 %r23, %r21, 1;
setp.ge.u32 %p2, %r23, {TILES};
@%p2 bra LAST;
xor.b32 %r24, %r22, 1024;
add.u32 %r24, %r24, %r10;
mul.wide.u32 %d6, %r23, 32;
add.u64 %d6, %d6, %d4;
cp.async.cg.shared.global [%r24], [%d6], 16;
cp.async.commit_group;
LAST:
add.u32 %r25, %r16, %r22;
add.u32 %r26, %r18, %r22;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r40, %r41, %r42, %r43}}, [%r25];
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r44, %r45}}, [%r26+512];
mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {{%r30, %r31, %r32, %r33}}, {{%r40, %r41, %r42, %r43}}, {{%r44, %r45}}, {{%r30, %r31, %r32, %r33}};
xor.b32 %r22, %r22, 1024;
mov.u32 %r21, %r23;
@!%p2 bra LOOP;
shr.u32 %r50, %r3, 2;          // row of the result
and.b32 %r51, %r3, 3;
shl.b32 %r51, %r51, 1;
shl.b32 %r52, %r2, 3;
add.u32 %r51, %r51, %r52;
shl.b32 %r53, %r50, 4;
add.u32 %r53, %r53, %r51;
mul.wide.u32 %d7, %r53, 4;
add.u64 %d7, %d7, %d3;
st.global.v2.b32 [%d7], {{%r30, %r31}};
st.global.v2.b32 [%d7+512], {{%r32, %r33}};
""",
    3,
    64,
)

# D[64, 8] = A[64, 32] * B[8, 32]^T in s8 by one warpgroup; rows of 32 bytes, swizzled as the descriptors say.
WARPGROUP_SHARED = 64 * 32 + 8 * 32
WARPGROUP = kernel(
    """
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 1;           // row of A
and.b32 %r3, %r1, 1;           // half
mul.wide.u32 %d4, %r1, 16;
add.u64 %d5, %d4, %d1;
ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d5];
shl.b32 %r8, %r2, 5;
shr.u32 %r9, %r2, 2;
and.b32 %r9, %r9, 1;
xor.b32 %r9, %r9, %r3;
shl.b32 %r9, %r9, 4;
add.u32 %r8, %r8, %r9;
mov.u32 %r10, smem;
add.u32 %r8, %r8, %r10;
st.shared.v4.b32 [%r8], {%r4, %r5, %r6, %r7};
setp.lt.u32 %p1, %r1, 16;
add.u64 %d6, %d4, %d2;
@%p1 ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d6];
@%p1 st.shared.v4.b32 [%r8+2048], {%r4, %r5, %r6, %r7};
fence.proxy.async.shared::cta;
bar.sync 0;
shr.u32 %r11, %r10, 4;
cvt.u64.u32 %d7, %r11;
or.b64 %d7, %d7, 0xC000001000010000; // 32-byte swizzle, 256 bytes between groups of 8 rows
add.u64 %d8, %d7, 128;
mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r20, %r21, %r22, %r23}, %d7, %d8, 1;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
bar.sync 0;
st.shared.b32 [%r8], %r1;
shr.u32 %r30, %r1, 5;
shl.b32 %r30, %r30, 4;
and.b32 %r31, %r1, 31;
shr.u32 %r32, %r31, 2;
add.u32 %r30, %r30, %r32;      // row
and.b32 %r31, %r31, 3;
shl.b32 %r31, %r31, 1;
shl.b32 %r33, %r30, 3;
add.u32 %r33, %r33, %r31;
mul.wide.u32 %d9, %r33, 4;
add.u64 %d9, %d9, %d3;
st.global.v2.b32 [%d9], {%r20, %r21};
st.global.v2.b32 [%d9+256], {%r22, %r23};
""",
    3,
    128,
)


def operands(rows: int, columns: int, k: int) -> tuple[Array, Array, Array, Array]:
    """Return random codes of A and B, a buffer for the result, and the expected result."""
    rng = np.random.default_rng(7)
    a, b = rng.integers(-128, 128, (rows, k), dtype=np.int8), rng.integers(-128, 128, (columns, k), dtype=np.int8)
    return a, b, np.full((rows, columns), -1, np.int32), a.astype(np.int32) @ b.astype(np.int32).T
