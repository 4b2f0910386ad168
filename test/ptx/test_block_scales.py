"""`mma.sync` with block scales along K: the interpreter against the tables of the PTX ISA, and ptxas accepts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx.assemble import AssemblerError, assemble
from ptx.kernels import launch

from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.instructions import PtxError

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@dataclass(frozen=True)
class Form:
    """A kind of the instruction, its operands and its scales."""

    kind: str
    operand: str
    scale: str
    blocks: int  # scales along K

    @property
    def k(self) -> int:
        return 64 if self.operand == "e2m1" else 32

    def text(self, selectors: str = "") -> str:
        kinds = f"f32.{self.operand}.{self.operand}.f32.{self.scale}"
        name = (
            f"mma.sync.aligned.m16n8k{self.k}.row.col.kind::{self.kind}.block_scale.scale_vec::{self.blocks}X.{kinds}"
        )
        a, b = selectors.split("; ") if selectors else ("{0, 0}", "{0, 0}")
        acc = "{%f0, %f1, %f2, %f3}"
        return f"{name} {acc}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {acc}, %r16, {a}, %r17, {b};"


FORMS = [
    Form("mxf8f6f4", "e4m3", "ue8m0", 1), Form("mxf8f6f4", "e5m2", "ue8m0", 1), Form("mxf4", "e2m1", "ue8m0", 2),
    Form("mxf4nvf4", "e2m1", "ue8m0", 2), Form("mxf4nvf4", "e2m1", "ue4m3", 4),
]  # fmt: skip


def kernel(line: str, target: str = "sm_120a") -> str:
    """Return a kernel around `line`, in which each lane loads eight operand words and four accumulators of its own."""
    loads = "".join(f"ld.global.b32 %r{10 + i}, [%d4+{4 * i}];\n" for i in range(8))
    loads += "".join(f"ld.global.f32 %f{i}, [%d5+{4 * i}];\n" for i in range(4))
    stores = "".join(f"st.global.f32 [%d5+{4 * i}], %f{i};\n" for i in range(4))
    return f""".version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 k_1, .param .u64 k_2)
.reqntid 32, 1, 1
{{
.reg .b32 %r<30>; .reg .f32 %f<4>; .reg .b64 %d<8>; .reg .b16 %h<4>;
ld.param.u64 %d1, [k_1];
ld.param.u64 %d2, [k_2];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d4, %r1, 32;
add.u64 %d4, %d4, %d1;
mul.wide.u32 %d5, %r1, 16;
add.u64 %d5, %d5, %d2;
{loads}{line}
{stores}ret;
}}
"""


def operands(form: Form, byte: int, threads: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """Return the operand words of each lane (PTX ISA, "Matrix Fragments for mma.m16n8k32", "... k64", "Block
    Scaling"), its accumulators, and as matrices the accumulator before the instruction and the result after it."""
    rng = np.random.default_rng(form.k + form.blocks + byte)
    per = 32 // (4 if form.operand == "e2m1" else 8)  # elements per register
    if form.operand == "e2m1":
        a, b = rng.integers(0, 16, (16, 64)), rng.integers(0, 16, (8, 64))
        left, right = E2M1[a], E2M1[b]
    else:
        kind: Any = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[form.operand]
        left, right = (rng.integers(-8, 9, (n, 32)).astype(kind) for n in (16, 8))
        a, b = left.view(np.uint8).astype(np.int64), right.view(np.uint8).astype(np.int64)
    if form.scale == "ue8m0":
        scales = rng.integers(120, 132, (24, form.blocks)).astype(np.uint8)
        factors = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    else:
        scales = rng.integers(0x30, 0x48, (24, form.blocks)).astype(np.uint8)
        factors = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    words, sums = np.zeros((32, 8), np.uint32), np.zeros((32, 4), np.float32)
    c = rng.integers(-9, 10, (16, 8)).astype(np.float32)
    noise = rng.integers(0, 128, (32, 8))  # for the scale bytes that the instruction must not read
    for lane in range(32):
        group, inside = divmod(lane, 4)

        def word(codes: Array, first: int) -> int:
            return int(sum(int(x) << (32 // per * i) for i, x in enumerate(codes[first : first + per])))

        for i in range(4):
            words[lane, i] = word(a[group + 8 * (i % 2)], per * inside + 4 * per * (i // 2))
            sums[lane, i] = c[group + 8 * (i // 2), 2 * inside + i % 2]
        for i in range(2):
            words[lane, 4 + i] = word(b[group], per * inside + 4 * per * i)
        held = noise[lane].astype(np.uint8)
        if inside // 2 == threads[0]:
            held[byte : byte + form.blocks] = scales[group + 8 * (inside % 2)]
        if inside == threads[1]:
            held[4 + byte : 4 + byte + form.blocks] = scales[16 + group]
        words[lane, 6:] = held.view(np.uint32)
    spread = np.repeat(factors, form.k // form.blocks, axis=1)
    want = (left.astype(np.float64) * spread[:16]) @ (right.astype(np.float64) * spread[16:]).T + c
    return words, sums, c, want


def result(sums: Array) -> Array:
    found = np.zeros((16, 8))
    for lane in range(32):
        for i in range(4):
            found[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] = sums[lane, i]
    return found


SELECTORS = [(form, byte, (0, 0)) for form in FORMS for byte in {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[form.blocks]]
SELECTORS += [(form, 0, threads) for form in FORMS[::2] for threads in ((1, 0), (0, 1), (1, 3))]


@pytest.mark.parametrize(("form", "byte", "threads"), SELECTORS)
def test_products_with_block_scales(form: Form, byte: int, threads: tuple[int, int]) -> None:
    words, sums, _, want = operands(form, byte, threads)
    line = form.text(f"{{{byte}, {threads[0]}}}; {{{byte}, {threads[1]}}}")
    (_, got), _ = launch(kernel(line), words, sums)
    assert np.array_equal(result(got), want.astype(np.float32))


@pytest.mark.parametrize("selectors", ["{1, 0}; {0, 0}", "{0, 1}; {0, 0}", "{0, 0}; {1, 0}", "{0, 0}; {0, 2}"])
def test_other_selectors_are_other_scales(selectors: str) -> None:
    """The control of the test above: a wrong selector changes the result."""
    words, sums, _, want = operands(FORMS[0], 0, (0, 0))
    (_, got), _ = launch(kernel(FORMS[0].text(selectors)), words, sums)
    assert not np.array_equal(result(got), want.astype(np.float32))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (FORMS[3].text("{1, 0}; {0, 0}"), "byte-id 1 of scale_vec::2X"),
        (FORMS[4].text("{0, 0}; {2, 0}"), "byte-id 2 of scale_vec::4X"),
        (FORMS[0].text("{0, 2}; {0, 0}"), "thread-id 2 of scales"),
        ("mov.b16 %h0, 0;\n" + FORMS[0].text("{%h0, 0}; {0, 0}"), "scale selector that is not a constant"),
        (FORMS[0].text().replace("1X", "2X"), "kind::mxf8f6f4 of e4m3 and e4m3 at k32 with scale_vec::2X of ue8m0"),
        (FORMS[4].text().replace("ue4m3", "ue8m0"), "with scale_vec::4X of ue8m0"),
        (FORMS[2].text().replace("k64", "k32"), "kind::mxf4 of e2m1 and e2m1 at k32"),
    ],
)
def test_what_the_instruction_does_not_have(line: str, reason: str) -> None:
    words, sums = np.zeros((32, 8), np.uint32), np.zeros((32, 4), np.float32)
    with pytest.raises(PtxError, match=reason):
        launch(kernel(line), words, sums)


def test_scales_have_no_sign() -> None:
    words, sums, _, _ = operands(FORMS[4], 0, (0, 0))
    words[:, 6] |= 0x80
    with pytest.raises(PtxError, match="a scale of ue4m3 has its top bit set"):
        launch(kernel(FORMS[4].text()), words, sums)


@pytest.mark.parametrize(("form", "byte", "threads"), SELECTORS)
def test_ptxas_takes_it(form: Form, byte: int, threads: tuple[int, int]) -> None:
    line = form.text(f"{{{byte}, {threads[0]}}}; {{{byte}, {threads[1]}}}")
    assemble(kernel(line))
    with pytest.raises(AssemblerError, match=r"not supported on \.target 'sm_120'"):
        assemble(kernel(line, "sm_120"))
