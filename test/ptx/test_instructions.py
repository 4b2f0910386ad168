"""Single instructions against numpy: each on a block of 64 threads, some with only a part of the lanes active."""

# ruff: noqa: E501  (lines of PTX, rows of tables)

from __future__ import annotations

import ctypes
import itertools
import platform
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx.kernels import kernel, launch

from qmlir.emulation.cuda.arithmetic import exact_product, exact_sum
from qmlir.emulation.cuda.formats import Array, fused, odd_sum, rounded
from qmlir.emulation.cuda.instructions import PtxError
from qmlir.emulation.cuda.text import parse

THREADS = 64
I32 = np.array([0, 1, -1, 2, -2, 3, 7, 100, -100, 127, -128, 255, 256, 2**31 - 1, -(2**31), 12345678], np.int32)
F32 = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.14159, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan],
    np.float32,
)


def operand(kind: str, seed: int) -> Array:
    """Return 64 values of a 32-bit type: special ones, then random ones."""
    rng = np.random.default_rng(seed)
    special = np.resize(np.roll(F32 if kind == "f32" else I32, seed), 32)
    any_ = rng.standard_normal(32).astype(np.float32) * 100 if kind == "f32" else rng.integers(-(2**31), 2**31, 32)
    return np.concatenate([special, any_]).astype(np.float32 if kind == "f32" else np.int32)


def run(lines: str, *sources: Array, out: Any = np.int32) -> Array:
    """Run lines with %r1, %r2, ... set to the threads' values; %r0 is the result (%d0 if it has 8 bytes)."""
    size = np.dtype(out).itemsize
    loads = "mov.u32 %r60, %tid.x;\nmul.wide.u32 %d30, %r60, 4;\n"
    for i in range(1, len(sources) + 1):
        loads += f"add.u64 %d{30 + i}, %d{i}, %d30;\nld.global.b32 %r{i}, [%d{30 + i}];\n"
    result = len(sources) + 1
    store = f"mul.wide.u32 %d30, %r60, {size};\nadd.u64 %d30, %d30, %d{result};\n"
    store += f"st.global.b{8 * size} [%d30], {'%d0' if size == 8 else '%r0'};\n"
    text = kernel(f"{loads}{lines}\n{store}", result, THREADS)
    arrays, _ = launch(text, *sources, np.zeros(THREADS, out), shared=1024)
    return arrays[-1]


def halves_compared(a: Array, b: Array) -> Array:
    """Return 1 if the lower half is less, plus 2 if the upper half is less; 3 if a lower half is NaN."""
    x, y = (np.ascontiguousarray(v).view(np.float16).reshape(-1, 2) for v in (a, b))
    nan, less = np.isnan(x[:, 0]) | np.isnan(y[:, 0]), x < y
    return (less[:, 0] | nan) + 2 * (less[:, 1] | nan)


def as_int(x: Array) -> Array:
    return x.astype(np.int64)


u32 = lambda x: x.view(np.uint32)  # noqa: E731
INTEGER: dict[str, tuple[str, int, Callable[..., Array]]] = {
    "add": ("add.s32 %r0, %r1, %r2;", 2, lambda a, b: a + b),
    "sub": ("sub.s32 %r0, %r1, %r2;", 2, lambda a, b: a - b),
    "add.sat": ("add.sat.s32 %r0, %r1, %r2;", 2, lambda a, b: np.clip(as_int(a) + b, -(2**31), 2**31 - 1)),
    "mul.lo": ("mul.lo.s32 %r0, %r1, %r2;", 2, lambda a, b: a * b),
    "mul.hi.s32": ("mul.hi.s32 %r0, %r1, %r2;", 2, lambda a, b: as_int(a) * b >> 32),
    "mul.hi.u32": ("mul.hi.u32 %r0, %r1, %r2;", 2, lambda a, b: (u32(a).astype(np.uint64) * u32(b) >> np.uint64(32))),
    "mad": ("mad.lo.s32 %r0, %r1, %r2, %r3;", 3, lambda a, b, c: a * b + c),
    "min.u32": ("min.u32 %r0, %r1, %r2;", 2, lambda a, b: np.minimum(u32(a), u32(b))),
    "max.s32": ("max.s32 %r0, %r1, %r2;", 2, np.maximum),
    "shl": ("and.b32 %r2, %r2, 63;\nshl.b32 %r0, %r1, %r2;", 2,
            lambda a, b: np.where(b & 63 > 31, 0, a << np.minimum(b & 63, 31))),
    "shr.s32": ("and.b32 %r2, %r2, 63;\nshr.s32 %r0, %r1, %r2;", 2, lambda a, b: a >> np.minimum(b & 63, 31)),
    "lop3": ("lop3.b32 %r0, %r1, %r2, %r3, 0xCA;", 3, lambda a, b, c: (a & b) | (~a & c)),
    "bfe.u32": ("bfe.u32 %r0, %r1, 5, 9;", 1, lambda a: u32(a) >> np.uint32(5) & np.uint32(511)),
    "bfe.s32": ("bfe.s32 %r0, %r1, 5, 9;", 1, lambda a: (a << 18) >> 23),
    "bfi": ("bfi.b32 %r0, %r1, %r2, 4, 8;", 2, lambda a, b: (b & ~0xFF0) | (a & 0xFF) << 4),
    "popc": ("popc.b32 %r0, %r1;", 1, lambda a: np.array([bin(int(v)).count("1") for v in u32(a)])),
    "clz": ("clz.b32 %r0, %r1;", 1, lambda a: np.array([32 - int(v).bit_length() for v in u32(a)])),
    "prmt": ("prmt.b32 %r0, %r1, %r2, 0x7045;", 2,
             lambda a, b: np.stack([x.view(np.uint8).reshape(-1, 4)[:, i] for x, i in ((b, 1), (b, 0), (a, 0), (b, 3))],
                                   axis=1).copy().view(np.int32)[:, 0]),
    "prmt of signs": ("prmt.b32 %r0, %r1, 0, 0xBBB3;", 1, lambda a: a >> 24),
    "dp4a": ("dp4a.s32.s32 %r0, %r1, %r2, %r3;", 3,
             lambda a, b, c: (c + (a.view(np.int8).astype(np.int32) * b.view(np.int8)).reshape(-1, 4).sum(axis=1))),
    "dp4a.u32": ("dp4a.u32.s32 %r0, %r1, %r2, %r3;", 3,
                 lambda a, b, c: (c + (a.view(np.uint8).astype(np.int32) * b.view(np.int8)).reshape(-1, 4).sum(axis=1))),
    "abs": ("abs.s32 %r0, %r1;", 1, np.abs),
    "neg": ("neg.s32 %r0, %r1;", 1, lambda a: -a),
    "selp": ("setp.gt.s32 %p1, %r1, %r2;\nselp.b32 %r0, %r1, %r2, %p1;", 2, np.maximum),
    "setp.and": ("setp.gt.s32 %p1, %r1, 0;\nsetp.lt.and.s32 %p2, %r1, %r2, %p1;\nselp.b32 %r0, 1, 0, %p2;", 2,
                 lambda a, b: (a > 0) & (a < b)),
    "setp|q": ("setp.gt.s32 %p1, %r1, 0;\nsetp.lt.and.s32 %p2|%p3, %r1, %r2, %p1;\nselp.b32 %r0, 1, 0, %p3;", 2,
               lambda a, b: (a > 0) & (a >= b)),
    "setp of halves": ("setp.nan.f16x2 %p1|%p2, %r1, %r2;\nsetp.lt.or.f16x2 %p2|%p3, %r1, %r2, %p1;\n"
                       "selp.b32 %r3, 1, 0, %p2;\nselp.b32 %r0, 2, 0, %p3;\nor.b32 %r0, %r0, %r3;", 2, halves_compared),
    "div": ("or.b32 %r2, %r2, 1;\ndiv.s32 %r0, %r1, %r2;", 2, lambda a, b: np.trunc(a / (b | 1).astype(np.float64))),
    "rem": ("or.b32 %r2, %r2, 1;\nrem.s32 %r0, %r1, %r2;", 2, lambda a, b: np.fmod(as_int(a), as_int(b | 1))),
    "shf": ("shf.l.wrap.b32 %r0, %r1, %r2, 8;", 2, lambda a, b: (b << 8) | (u32(a) >> np.uint32(24)).view(np.int32)),
    "cvt.sat": ("cvt.sat.s8.s32 %r0, %r1;", 1, lambda a: np.clip(a, -128, 127)),
    "cvt.s8": ("cvt.s8.s32 %h0, %r1;\ncvt.s32.s16 %r0, %h0;", 1, lambda a: a.astype(np.int8)),
    "cvt.pack": ("cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3;", 3,
                 lambda a, b, c: (c << 16) | (np.clip(a, -128, 127).astype(np.int8).view(np.uint8).astype(np.int32) << 8)
                 | np.clip(b, -128, 127).astype(np.int8).view(np.uint8)),
    "guard": ("mov.u32 %r0, %r2;\nsetp.gt.s32 %p1, %r1, 5;\n@!%p1 mov.u32 %r0, 9;", 2,
              lambda a, b: np.where(a > 5, b, 9)),
    "loop": ("and.b32 %r1, %r1, 7;\nmov.u32 %r0, 0;\nA:\nadd.u32 %r0, %r0, 3;\nadd.s32 %r1, %r1, -1;\n"
             "setp.ge.s32 %p1, %r1, 0;\n@%p1 bra A;", 1, lambda a: 3 * ((a & 7) + 1)),
    "branches": ("setp.gt.s32 %p1, %r1, 0;\n@%p1 bra A;\nmov.u32 %r0, 1;\nbra.uni B;\nA:\nmov.u32 %r0, 2;\nB:\n"
                 "add.u32 %r0, %r0, 1;", 1, lambda a: np.where(a > 0, 3, 2)),
    "scope": ("{ .reg .pred q; .reg .b32 t; setp.gt.s32 q, %r1, 0; mov.b32 t, 4; @q bra L; mov.b32 t, 5; L: mov.b32 %r0, t; }",
              1, lambda a: np.where(a > 0, 4, 5)),
    "shfl.bfly": ("shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1;", 1, lambda a: a[np.arange(64) ^ 5]),
    "shfl.down": ("shfl.sync.down.b32 %r0|%p1, %r1, 3, 31, -1;\n@!%p1 mov.u32 %r0, 0;", 1,
                  lambda a: np.where(np.arange(64) % 32 < 29, np.roll(a, -3), 0)),
    "shfl.up": ("shfl.sync.up.b32 %r0, %r1, 1, 0, -1;", 1, lambda a: np.where(np.arange(64) % 32, np.roll(a, 1), a)),
    "shfl.idx of 8": ("shfl.sync.idx.b32 %r0, %r1, 2, 0x181F, -1;", 1, lambda a: a[np.arange(64) // 8 * 8 + 2]),
    "ballot": ("setp.gt.s32 %p1, %r1, 0;\nvote.sync.ballot.b32 %r0, %p1, -1;", 1,
               lambda a: np.repeat([int("".join(str(int(b)) for b in row[::-1]), 2) for row in (a > 0).reshape(2, 32)], 32)),
    "redux": ("redux.sync.add.s32 %r0, %r1, -1;", 1,
              lambda a: np.repeat(a.reshape(2, 32).sum(axis=1, dtype=np.int32), 32)),
    "bar": ("mov.u32 %r10, smem;\nshl.b32 %r11, %r60, 2;\nadd.u32 %r11, %r11, %r10;\nst.shared.b32 [%r11], %r1;\n"
            "bar.sync 0;\nsub.u32 %r12, 63, %r60;\nshl.b32 %r12, %r12, 2;\nadd.u32 %r12, %r12, %r10;\n"
            "ld.shared.b32 %r0, [%r12];", 1, lambda a: a[::-1]),
    "generic": ("mov.u64 %d10, smem;\ncvta.shared.u64 %d10, %d10;\nadd.u64 %d10, %d10, %d30;\nst.b32 [%d10], %r1;\n"
                "ld.b32 %r0, [%d10];", 1, lambda a: a),
    "atom": ("mov.u32 %r10, smem;\nsetp.eq.u32 %p1, %r60, 0;\n@%p1 st.shared.b32 [%r10], 0;\nbar.sync 0;\n"
             "atom.shared.add.u32 %r0, [%r10], %r1;", 1, lambda a: np.concatenate([[0], np.cumsum(a, dtype=np.int32)[:-1]])),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGER)
def test_integers(name: str) -> None:
    lines, count, f = INTEGER[name]
    sources = [operand("s32", i) for i in range(count)]
    with np.errstate(all="ignore"):
        want = np.asarray(f(*sources)).astype(np.int64).astype(np.uint32).view(np.int32)
    assert np.array_equal(run(lines, *sources), want)


def flush(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


FLOAT: dict[str, tuple[str, int, Callable[..., Array]]] = {
    "add": ("add.rn.f32 %r0, %r1, %r2;", 2, lambda a, b: a + b),
    "add.ftz": ("add.rn.ftz.f32 %r0, %r1, %r2;", 2, lambda a, b: flush(flush(a) + flush(b))),
    "mul": ("mul.rn.f32 %r0, %r1, %r2;", 2, lambda a, b: a * b),
    "sub": ("sub.f32 %r0, %r1, %r2;", 2, lambda a, b: a - b),
    "div": ("div.rn.f32 %r0, %r1, %r2;", 2, lambda a, b: a / b),
    "sqrt": ("abs.f32 %r1, %r1;\nsqrt.rn.f32 %r0, %r1;", 1, lambda a: np.sqrt(np.abs(a))),
    "rcp": ("rcp.rn.f32 %r0, %r1;", 1, lambda a: np.float32(1) / a),
    "min": ("min.f32 %r0, %r1, %r2;", 2,
            lambda a, b: np.where((a == 0) & (b == 0) & (np.signbit(a) | np.signbit(b)), np.float32(-0.0), np.fmin(a, b))),
    "max.NaN": ("max.NaN.f32 %r0, %r1, %r2;", 2, np.maximum),
    "neg": ("neg.f32 %r0, %r1;", 1, np.negative),
    "rni": ("cvt.rni.f32.f32 %r0, %r1;", 1, np.rint),
    "rzi": ("cvt.rzi.f32.f32 %r0, %r1;", 1, np.trunc),
    "f64": ("cvt.f64.f32 %d10, %r1;\ncvt.f64.f32 %d11, %r2;\nadd.rn.f64 %d10, %d10, %d11;\ncvt.rn.f32.f64 %r0, %d10;", 2,
            lambda a, b: (a.astype(np.float64) + b).astype(np.float32)),
    "f16": ("cvt.rn.f16.f32 %h0, %r1;\ncvt.f32.f16 %r0, %h0;", 1, lambda a: a.astype(np.float16)),
    "bf16": ("cvt.rn.bf16.f32 %h0, %r1;\ncvt.f32.bf16 %r0, %h0;", 1, lambda a: a.astype(ml_dtypes.bfloat16)),
    "f16x2": ("cvt.rn.f16x2.f32 %r3, %r1, %r2;\nmov.b32 {%h0, %h1}, %r3;\nsub.f16 %h2, %h1, %h0;\ncvt.f32.f16 %r0, %h2;", 2,
              lambda a, b: a.astype(np.float16) - b.astype(np.float16)),
    "selp.f32": ("setp.lt.f32 %p1, %r1, %r2;\nselp.f32 %r0, %r1, %r2, %p1;", 2, lambda a, b: np.where(a < b, a, b)),
    "setp.ltu": ("setp.ltu.f32 %p1, %r1, %r2;\nselp.f32 %r0, 0f3F800000, 0f00000000, %p1;", 2,
                 lambda a, b: ~(a >= b)),
    "mixed fma": ("cvt.rn.f16.f32 %h0, %r1;\ncvt.rn.f16.f32 %h1, %r2;\nfma.rn.f32.f16 %r0, %h0, %h1, %r3;", 3,
                  lambda a, b, c: fused(a.astype(np.float16), b.astype(np.float16), c, np.float32)),
    "mixed sub": ("cvt.rn.bf16.f32 %h0, %r1;\nsub.rn.f32.bf16 %r0, %h0, %r2;", 2,
                  lambda a, b: a.astype(ml_dtypes.bfloat16).astype(np.float32) - b),
    "immediate": ("fma.rn.f32 %r0, %r1, 0f40000000, 0fBF800000;", 1, lambda a: a.astype(np.float64) * 2 - 1),
    "from s32": ("cvt.rn.f32.s32 %r0, %r1;", 1, lambda a: a.view(np.int32)),
    "sat": ("add.sat.f32 %r0, %r1, 0f00000000;", 1, lambda a: np.where(np.isnan(a), 0, np.clip(a + 0, 0, 1))),
    "ex2": ("cvt.rni.f32.f32 %r1, %r1;\nex2.approx.f32 %r0, %r1;", 1, lambda a: np.exp2(np.rint(a))),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOAT)
def test_floats(name: str) -> None:
    lines, count, f = FLOAT[name]
    sources = [operand("f32", i) for i in range(count)]
    with np.errstate(all="ignore"):
        want = np.asarray(f(*sources)).astype(np.float32)
    got = run(lines, *sources, out=np.float32)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))


TO_INTEGER = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


@pytest.mark.parametrize("mode", TO_INTEGER)
@pytest.mark.parametrize(("kind", "low", "high"), [("s32", -(2**31), 2**31 - 1), ("u8", 0, 255), ("s8", -128, 127)])
def test_floats_to_integers(mode: str, kind: str, low: int, high: int) -> None:
    x = operand("f32", 0)
    want = np.clip(np.nan_to_num(TO_INTEGER[mode](x.astype(np.float64)), nan=0.0), low, high).astype(np.int64)
    assert np.array_equal(run(f"cvt.{mode}.{kind}.f32 %r0, %r1;", x), want.astype(np.int32))


def test_two_types_that_are_not_known_are_refused() -> None:
    with pytest.raises(PtxError, match=r"mul of f32 and f16 is not interpreted"):
        run("cvt.rn.f16.f32 %h0, %r1;\nmul.rn.f32.f16 %r0, %h0, %h0;", operand("f32", 0))


def test_fused_multiply_add_rounds_once() -> None:
    # (1 + 2^-12)^2 - 1: the result depends on the last bits of the product.
    x = np.full(THREADS, 1 + 2.0**-12, np.float32)
    got = run("fma.rn.f32 %r0, %r1, %r1, 0fBF800000;", x, out=np.float32)
    assert (got == np.float32(2.0**-11 + 2.0**-24)).all()
    assert (np.float32(x * x) - 1 != got).all()


def test_fused_multiply_add_of_f64_rounds_once() -> None:
    # The second product has 105 significand bits, and 1 + 2^-53 + 2^-70 is above the midpoint of two numbers of f64.
    a = np.array([1 + 2.0**-30, 1 + 2.0**-52, 2.0**-53 + 2.0**-70])
    b = np.array([1 - 2.0**-30, 1 - 2.0**-52, 1.0])
    c = np.array([-1.0, -1.0, 1.0])
    assert fused(a, b, c, np.float64).tolist() == [-(2.0**-60), -(2.0**-104), 1 + 2.0**-52]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the modes are those of x86-64")
@pytest.mark.parametrize(("mode", "number"), [("rn", 0), ("rm", 0x400), ("rp", 0x800), ("rz", 0xC00)])
def test_f64_is_rounded_as_by_the_host(mode: str, number: int) -> None:
    libm = ctypes.CDLL("libm.so.6")
    libm.fma.restype, libm.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.0**-600, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan]
    values = np.array([*itertools.product(special, repeat=3), *rng.standard_normal((500, 3))])
    a, b, c = values.T
    assert libm.fesetround(number) == 0
    try:
        want = np.array([libm.fma(*x) for x in values.tolist()])
        with np.errstate(all="ignore"):
            sums, products = a + c, a * b
    finally:
        libm.fesetround(0)
    with np.errstate(all="ignore"):
        got = fused(a, b, c, np.float64, mode), exact_sum(a, c, mode), exact_product(a, b, mode)
    for x, y in zip(got, (want, sums, products), strict=True):
        np.testing.assert_array_equal(x, y)
        known = ~np.isnan(y)
        np.testing.assert_array_equal(np.signbit(x)[known], np.signbit(y)[known])


def test_sums_of_f64_are_rounded_to_zero() -> None:
    text = "cvt.f64.f32 %d0, %r1;\ncvt.f64.f32 %d25, %r2;\nadd.rz.f64 %d0, %d0, %d25;"
    one, small = (np.full(THREADS, x, np.float32) for x in (1, -(2.0**-60)))
    assert (run(text, one, small, out=np.float64) == 1 - 2.0**-53).all()


@pytest.mark.parametrize("name", ["div.rz.f64 %d0, %d0, %d0", "div.rm.f32 %r1, %r1, %r1", "sqrt.rz.f64 %d0, %d0"])
def test_other_roundings_are_refused(name: str) -> None:
    with pytest.raises(PtxError, match=rf"{re.escape(name.split()[0])} is not interpreted"):
        run(f"cvt.f64.f32 %d0, %r1;\n{name};", operand("f32", 0), out=np.float64)


@pytest.mark.parametrize(("start", "length"), [(0, 64), (8, 64), (0, 63), (64, 8), (200, 255), (60, 8), (5, 0)])
def test_fields_of_64_bits_are_inserted(start: int, length: int) -> None:
    a, b = operand("s32", 0), operand("s32", 1)
    got = run(f"mov.b64 %d0, {{%r1, %r2}};\nmov.b64 %d25, {{%r2, %r1}};\n"
              f"bfi.b64 %d0, %d0, %d25, {start}, {length};", a, b, out=np.uint64)  # fmt: skip
    words = [(int(x) & 0xFFFFFFFF, int(y) & 0xFFFFFFFF) for x, y in zip(a, b, strict=True)]
    field = ((1 << length) - 1) << start & (2**64 - 1)
    want = [((x | y << 32) << start & field) | ((y | x << 32) & ~field) for x, y in words]
    assert got.tolist() == want


def test_rounding_to_odd_avoids_rounding_twice() -> None:
    # 1 + 2^-24 + 2^-60 is just above the midpoint of two f32 values; f64 would drop the 2^-60, which decides.
    exact = odd_sum(np.array([1 + 2.0**-24]), np.array([2.0**-60]))
    assert rounded(exact, np.float32)[0] == np.float32(1 + 2.0**-23)
    assert rounded(np.array([1 + 2.0**-24]) + 2.0**-60, np.float32)[0] == 1
    up = np.array([1 + 2.0**-8 + 2.0**-40])
    assert float(rounded(up, ml_dtypes.bfloat16)[0]) == 1 + 2.0**-7
    assert float(rounded(up, ml_dtypes.bfloat16, "rz")[0]) == 1
    assert float(rounded(-up, np.float16, "rm")[0]) == -(1 + 2.0**-8 + 2.0**-10)
    one = np.array([1.0], np.float32)
    assert fused(one, one, np.array([2.0**-30], np.float32), np.float32)[0] == 1


def test_wide_integers() -> None:
    a, b = operand("s32", 0), operand("s32", 3)
    got = run("mul.wide.s32 %d0, %r1, %r2;", a, b, out=np.int64)
    assert np.array_equal(got, as_int(a) * b)
    got = run("cvt.s64.s32 %d10, %r1;\ncvt.s64.s32 %d11, %r2;\nshl.b64 %d10, %d10, 20;\nmul.hi.s64 %d0, %d10, %d11;", a, b,
              out=np.int64)  # fmt: skip
    assert got.tolist() == [int(x) * 2**20 * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    got = run("cvt.s64.s32 %d10, %r1;\nmul.hi.u64 %d0, %d10, -6148914691236517205;", a, out=np.int64)
    want = [((int(x) % 2**64) * (-6148914691236517205 % 2**64) >> 64) for x in a]
    assert got.view(np.uint64).tolist() == want


@pytest.mark.parametrize(
    ("dtype", "name", "k"),
    [(np.int8, "s8", 32), (np.uint8, "u8", 32), (np.int8, "s8", 16), (np.float16, "f16", 16), (np.float16, "f16", 8),
     (ml_dtypes.bfloat16, "bf16", 16), (ml_dtypes.float8_e4m3fn, "e4m3", 32), (ml_dtypes.float8_e5m2, "e5m2", 32)],
)  # fmt: skip
def test_mma(dtype: Any, name: str, k: int) -> None:
    """The fragments are loaded from row-major matrices as the ISA defines them."""
    rng = np.random.default_rng(3)
    draw = (lambda *s: rng.integers(0 if name == "u8" else -128, 128, s)) if name in ("s8", "u8") else (
        lambda *s: rng.integers(-8, 9, s))  # fmt: skip
    a, b = draw(16, k).astype(dtype), draw(8, k).astype(dtype)
    integer = name in ("s8", "u8")
    c = rng.integers(-1000, 1000, (16, 8)).astype(np.int32 if integer else np.float32)
    per = 4 // np.dtype(dtype).itemsize
    row_words = k // per
    n_a, n_b = 16 * k // per // 32, 8 * k // per // 32
    lines = ["mov.u32 %r1, %tid.x;", "shr.u32 %r2, %r1, 2;", "and.b32 %r3, %r1, 3;"]
    for i in range(n_a):  # word (group + 8 (i % 2)) * row_words + in group + 4 (i / 2)
        lines += [f"mad.lo.u32 %r4, %r2, {row_words}, {8 * (i % 2) * row_words + 4 * (i // 2)};", "add.u32 %r4, %r4, %r3;",
                  "mul.wide.u32 %d5, %r4, 4;", "add.u64 %d5, %d5, %d1;", f"ld.global.b32 %r{10 + i}, [%d5];"]  # fmt: skip
    for i in range(n_b):
        lines += [f"mad.lo.u32 %r4, %r2, {row_words}, {4 * i};", "add.u32 %r4, %r4, %r3;", "mul.wide.u32 %d5, %r4, 4;",
                  "add.u64 %d5, %d5, %d2;", f"ld.global.b32 %r{20 + i}, [%d5];"]  # fmt: skip
    lines += ["shl.b32 %r4, %r2, 3;", "shl.b32 %r5, %r3, 1;", "add.u32 %r4, %r4, %r5;", "mul.wide.u32 %d5, %r4, 4;",
              "add.u64 %d5, %d5, %d3;", "ld.global.v2.b32 {%r30, %r31}, [%d5];", "ld.global.v2.b32 {%r32, %r33}, [%d5+256];"]  # fmt: skip
    regs = ", ".join(f"%r{10 + i}" for i in range(n_a)), ", ".join(f"%r{20 + i}" for i in range(n_b))
    kinds = f"s32.{name}.{name}.s32" if integer else f"f32.{name}.{name}.f32"
    acc = "{%r30, %r31, %r32, %r33}"
    lines += [f"mma.sync.aligned.m16n8k{k}.row.col.{kinds} {acc}, {{{regs[0]}}}, {{{regs[1]}}}, {acc};",
              "st.global.v2.b32 [%d5], {%r30, %r31};", "st.global.v2.b32 [%d5+256], {%r32, %r33};"]  # fmt: skip
    (_, _, got), _ = launch(kernel("\n".join(lines), 3, 32), a, b, c)
    want = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T
    assert np.array_equal(got, want)


@pytest.mark.parametrize("line", ["mov.b32 %r0, %undeclared;", "add.u32 %r0, %r1", "ld.global.q7 %r0, [%d1];", "bra NOWHERE;",
                                  "cvt.rn.e9m9.f32 %r0, %r1;"])  # fmt: skip
def test_what_is_not_understood_is_named(line: str) -> None:
    with pytest.raises(PtxError, match="line "):
        run(line, operand("s32", 0))


def test_text_that_is_no_ptx() -> None:
    with pytest.raises(PtxError, match="not a PTX module"):
        parse("hello")


CHOSEN = """
mov.u64 %d3, k_1;
mov.u64 %d4, k_2;
mov.u32 %r1, %tid.x;
setp.gt.u32 %p1, %r1, 15;
selp.b64 %d5, %d4, %d3, %p1;   // each thread chooses a parameter by its address
ld.param.u64 %d6, [%d5];
mul.wide.u32 %d7, %r1, 4;
add.u64 %d6, %d6, %d7;
ld.global.u32 %r2, [%d6];
add.u64 %d8, %d9, %d7;
st.global.u32 [%d8], %r2;
"""


def test_a_parameter_by_its_address() -> None:
    """LLVM selects one of two pointer parameters in this way."""
    a, b, out = np.arange(32, dtype=np.uint32), np.arange(100, 132, dtype=np.uint32), np.zeros(32, np.uint32)
    (_, _, made), _ = launch(kernel("ld.param.u64 %d9, [k_3];" + CHOSEN, 3, 32), a, b, out)
    np.testing.assert_array_equal(made, np.where(np.arange(32) > 15, b, a))
    beyond = CHOSEN.replace("ld.param.u64 %d6, [%d5];", "ld.param.u64 %d6, [%d5+4];")
    with pytest.raises(PtxError, match=r"8 bytes at .* of the parameters are not all there"):
        launch(kernel("ld.param.u64 %d9, [k_3];" + beyond, 3, 32), a, b, out)
