"""Each instruction alone: vector arithmetic against AMD's pseudocode, other instructions against tables and loops."""

# ruff: noqa: E501  (rows of tables)

from __future__ import annotations

import importlib
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tinygrad")
from emulation.amd_kernels import decoded, gang, instructions, operation_of
from emulation.pcode import Lane
from emulation.pcode_values import Unknown

from qmlir.emulation.amd import floats
from qmlir.emulation.amd.arithmetic import LANES
from qmlir.emulation.amd.decode import canonical, decode
from qmlir.emulation.amd.generation import GENERATIONS
from qmlir.emulation.amd.lanes import dpp_lanes
from qmlir.emulation.amd.lds_instructions import swizzle_lanes, transpose_sources
from qmlir.emulation.amd.operands import TYPES, WIDTH

SETS = ("cdna", "rdna3", "rdna4")
FLOAT_BITS = [0, 1 << 31, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x80000001, 0x7FFFFF, 0x4F000000,
              0xCF000000, 0x4F800000, 0x3F000000, 0x40200000, 0xC0600000, 0x477FE000, 0x477FF000, 0x33800000]  # fmt: skip
HALF_BITS = [0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 1, 0x8001, 0x7BFF, 0x4200, 0x3800]
INTEGERS = [0, 1, 2, 31, 32, 33, 127, 128, 255, 0x7FFF, 0x8000, 0xFFFF, 0xFFFFFF, 0x800000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]  # fmt: skip
# The tables have no pseudocode of these, or none that gives a value: other tests compare them.
APPROXIMATE = {"v_exp", "v_log", "v_sin", "v_cos", "v_rsq", "v_rcp", "v_sqrt", "v_cvt_pk_rtz", "v_ldexp_f16"}


def pseudocode() -> dict[str, dict[str, str]]:
    """The pseudocode by the emulator's name of an instruction, then by instruction set."""
    found: dict[str, dict[str, str]] = {}
    for name in SETS:
        table = importlib.import_module(f"tinygrad.runtime.autogen.amd.{name}.str_pcode").PCODE
        for op, text in table.items():
            if type(op).__name__.startswith("VOP"):
                found.setdefault(canonical(op.name), {}).setdefault(name, text)
    return found


PSEUDOCODE = pseudocode()


def operands(kind: str, rng: Any, count: int) -> Any:
    width = WIDTH[kind]
    random = rng.integers(0, 1 << 62, count, dtype=np.uint64) * np.uint64(3) & np.uint64((1 << width) - 1)
    special: list[int] = HALF_BITS if kind == "f16" else FLOAT_BITS if kind == "f32" else INTEGERS
    if kind == "f32":  # values of ordinary magnitude as well
        near = (rng.standard_normal(count) * 2.0 ** rng.integers(-20, 20, count)).astype(np.float32).view(np.uint32)
        random = np.where(rng.random(count) < 0.7, near, random)
    if kind == "f64":
        random = (rng.standard_normal(count) * 1000).view(np.uint64)
        special = []
    if special:
        random = np.where(rng.random(count) < 0.4, rng.choice(np.array(special, np.uint64), count), random)
    return random & np.uint64((1 << width) - 1)


def same(got: int, want: int, kind: str) -> bool:
    if got == want or kind not in ("f16", "f32", "f64"):
        return got == want
    view = {"f16": (np.uint16, np.float16), "f32": (np.uint32, np.float32), "f64": (np.uint64, np.float64)}[kind]
    a, b = (np.array(x, view[0]).view(view[1]) for x in (got, want))
    return bool(np.isnan(a) and np.isnan(b))


def compared(name: str, text: str, count: int = 20) -> int:
    """Compare an instruction with its pseudocode on random operands. Returns the number of lanes compared."""
    result, kinds, function = LANES[name]
    rng = np.random.default_rng(len(name))
    given = [operands(k, rng, count) for k in kinds.split()]
    arrays = [x.astype(TYPES[f"u{WIDTH[k]}"]).view(TYPES[k]) for x, k in zip(given, kinds.split(), strict=True)]
    if name.startswith("v_ldexp"):
        arrays[1] = (arrays[1] % 61 - 30).astype(arrays[1].dtype)
        given[1] = arrays[1].astype(np.int64).astype(np.uint64) & np.uint64((1 << WIDTH[kinds.split()[1]]) - 1)
    with np.errstate(all="ignore"):
        got = np.broadcast_to(np.asarray(function(*arrays)), count).astype(TYPES[result])
    bits = got.view(TYPES[f"u{WIDTH[result]}"])
    for i in range(count):
        lane = Lane(**{f"S{j}": int(x[i]) for j, x in enumerate(given)}, D0=0, ROUND_MODE=0, ROUND_NEAREST_EVEN=0,
                    ROUND_TOWARD_ZERO=0)  # fmt: skip
        lane.run(text)
        want = lane.bits.get("D0", lane.bits.get("D", 0)) & ((1 << WIDTH[result]) - 1)
        shown = [hex(int(x[i])) for x in given]
        assert same(int(bits[i]), want, result), f"{name} of {shown}: {int(bits[i]):#x}, pseudocode says {want:#x}"
    return count


def cases() -> list[tuple[str, str]]:
    return [(n, s) for n in LANES for s, _ in PSEUDOCODE.get(n, {}).items() if not n.startswith(tuple(APPROXIMATE))]


def readable() -> dict[str, list[str]]:
    """By instruction, the instruction sets whose pseudocode `pcode` can evaluate; it is tried on zeros."""
    found: dict[str, list[str]] = {}
    for name, which in cases():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                Lane(S0=0, S1=0, S2=0, D0=0, ROUND_MODE=0, ROUND_NEAREST_EVEN=0, ROUND_TOWARD_ZERO=0).run(
                    PSEUDOCODE[name][which]
                )
        except (Unknown, KeyError, ZeroDivisionError, AttributeError, RecursionError):
            continue
        found.setdefault(name, []).append(which)
    return found


READABLE = readable()


@pytest.mark.parametrize("name", READABLE)
def test_vector_arithmetic_is_amds_pseudocode(name: str) -> None:
    for which in READABLE[name]:
        assert compared(name, PSEUDOCODE[name][which]) > 0


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_medians_of_zeros_and_nans_are_amds_pseudocode(kind: str) -> None:
    """All triples: the pseudocode compares 0 and -0 as equal, so their order decides which one is the median."""
    some = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], TYPES[kind])
    triples = np.array(list(itertools.product(some.view(TYPES[f"u{WIDTH[kind]}"]), repeat=3)))
    got = LANES[f"v_med3_{kind}"][2](*triples.T.copy().view(TYPES[kind])).view(triples.dtype)
    for text in (PSEUDOCODE[f"v_med3_{kind}"][which] for which in SETS):
        for triple, found in zip(triples.tolist(), got.tolist(), strict=True):
            want = Lane(**{f"S{j}": x for j, x in enumerate(triple)}, D0=0).run(text).bits["D0"]
            assert same(found, want, kind), [hex(x) for x in (*triple, found, want)]


def test_packing_halves_quiets_nans() -> None:
    """The instruction moves floats, not bits: LLVM selects it only for canonical operands (`is_canonicalized_2`)."""
    low, high = (np.array([x], np.uint16).view(np.float16) for x in (0xFD8F, 0x0001))
    assert LANES["v_pack_b32_f16"][2](low, high) == [0x0001FF8F]


def test_most_are_compared() -> None:
    left = {n for n, _ in cases()} - READABLE.keys()
    assert len(READABLE) > 120, sorted(left)


# ---- between lanes


@pytest.mark.parametrize(
    ("control", "wanted"),
    [
        (0x1B, lambda n: n ^ 3), (0xE4, lambda n: n), (0x101, lambda n: n + 1 if n % 16 < 15 else -1),
        (0x113, lambda n: n - 3 if n % 16 > 2 else -1), (0x121, lambda n: n // 16 * 16 + (n - 1) % 16),
        (0x140, lambda n: n ^ 15), (0x141, lambda n: n ^ 7), (0x142, lambda n: n // 16 * 16 - 1 if n > 15 else -1),
        (0x143, lambda n: 31 if n > 31 else -1), (0x155, lambda n: n // 16 * 16 + 5), (0x163, lambda n: n ^ 3),
    ],
)  # fmt: skip
def test_dpp(control: int, wanted: Any) -> None:
    np.testing.assert_array_equal(dpp_lanes(control, 64), [wanted(n) for n in range(64)])


@pytest.mark.parametrize("machine", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize(("source", "inactive"), [(0xE9, False), (0xEA, True)])
def test_dpp_of_eight_lanes(machine: str, source: int, inactive: bool) -> None:
    """Each lane of eight names the lane that it reads. An inactive lane reads as 0, unless the operand says otherwise
    (RDNA 3 and 4 ISA guides, "DPP8")."""
    order = [3, 0, 7, 7, 1, 5, 2, 6]
    move = 0x3F << 25 | 1 << 17 | 1 << 9 | source  # v_mov_b32 v1
    lanes = 2 | sum(lane << 8 + 3 * i for i, lane in enumerate(order))  # of v2
    g = gang(32)
    values = np.arange(100, 132)
    g.u32[1, 0], g.u32[2, 0] = 0, values
    on = np.arange(32) != 5
    g.set_exec(on[None])
    operation_of(machine, move.to_bytes(4, "little") + lanes.to_bytes(4, "little"), 32).run(g)
    read = np.arange(32) // 8 * 8 + np.tile(order, 4)
    want = np.where(on, np.where(on[read] | inactive, values[read], 0), 0)
    np.testing.assert_array_equal(g.u32[1, 0], want)


def test_swizzle() -> None:
    np.testing.assert_array_equal(swizzle_lanes(0x041F, 64), np.arange(64) ^ 1)
    np.testing.assert_array_equal(swizzle_lanes(0x8000 | 0b00011011, 64), np.arange(64) ^ 3)


@pytest.mark.parametrize("size", [16, 32])
def test_permlane_swap_is_amds_pseudocode(size: int) -> None:
    i = instructions("gfx950")
    g = gang(64)
    x, y = np.arange(64, dtype=np.uint32), np.arange(100, 164, dtype=np.uint32)
    g.u32[1, 0], g.u32[2, 0] = x, y
    operation_of("gfx950", getattr(i, f"v_permlane{size}_swap_b32_e32")(i.v[1], i.v[2]), 64).run(g)
    vdst, source = x.copy(), y.copy()
    for block in range(0, 64, 2 * size):
        for lane in range(size):
            source[block + lane], vdst[block + lane + size] = vdst[block + lane + size], source[block + lane]
    np.testing.assert_array_equal(g.u32[1, 0], vdst)
    np.testing.assert_array_equal(g.u32[2, 0], source)


def test_permlanex16() -> None:
    """Lane i of a row reads the lane of the other row that 4 bits of two scalar operands select."""
    i = instructions("gfx1100")
    g = gang(32)
    g.u32[1, 0] = np.arange(32)
    g.s_u32[4], g.s_u32[5] = 0x76543210, 0xFEDCBA98
    operation_of("gfx1100", i.v_permlanex16_b32(i.v[2], i.v[1], i.s[4], i.s[5]), 32).run(g)
    np.testing.assert_array_equal(g.u32[2, 0], np.arange(32) ^ 16)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_transposed_loads(bits: int) -> None:
    """Rows of 16 elements in the lanes' words become columns."""
    n = 64 // bits
    rows = np.arange(16 * n).reshape(n, 16)  # in each block of 16 lanes, in the order of LDS
    held = rows.reshape(16, n)
    lane, element = transpose_sources(bits, 64)
    for block in range(4):
        for inside in range(16):
            at = 16 * block + inside
            found = [held[lane[at, j] - 16 * block, element[at, j]] for j in range(n)]
            assert found == list(rows[:, inside])


def test_packed_f32_takes_either_half() -> None:
    i = instructions("gfx942")
    g = gang(64)
    for r, value in ((2, 3.0), (3, 5.0), (4, 7.0), (5, 11.0)):
        g.f32[r] = value
    operation_of("gfx942", i.v_pk_mul_f32(i.v[6:7], i.v[2:3], i.v[4:5], opsel=1, opsel_hi=2), 64).run(g)
    assert g.f32[6, 0, 0] == 5 * 7
    assert g.f32[7, 0, 0] == 3 * 11


def test_registers_from_128_on_are_halves_on_rdna_only() -> None:
    """In `v_add_f16 v129, ...`, v129 is register 129 on CDNA, and the high half of v1 on RDNA."""
    cdna, rdna = instructions("gfx942"), instructions("gfx1100")
    g = gang(64)
    g.f16[130, ..., 0] = 1.5
    operation_of("gfx942", cdna.v_add_f16_e32(cdna.v[129], cdna.v[130], cdna.v[130]), 64).run(g)
    assert g.f16[129, 0, 0, 0] == 3
    g = gang(32)
    g.f16[2, ..., 1] = 1.5
    operation_of("gfx1100", rdna.v_add_f16_e32(rdna.v[1].h, rdna.v[130], rdna.v[2].h), 32).run(g)
    assert g.f16[1, 0, 0, 1] == 3
    assert g.f16[1, 0, 0, 0] == 0


def test_one_byte_floats_are_those_of_the_chip() -> None:
    code = np.uint32(0x80)  # NaN of e4m3fnuz, -0 of e4m3
    for machine, wanted in (("gfx942", np.nan), ("gfx950", -0.0)):
        i = instructions(machine)
        g = gang(64)
        g.u32[1] = code
        operation_of(machine, i.v_cvt_pk_f32_fp8_e32(i.v[2:3], i.v[1]), 64).run(g)
        np.testing.assert_array_equal(g.f32[2, 0, 0], np.float32(wanted))


ENDS = {
    "f32": [3.4e38, 2.0**126, 2.0**127, 1.5 * 2.0**126, 2.0**-126, 1e-38, 1.0, 3.0, -7e30, 1e20],
    "f64": [1.7e308, 2.0**1022, 2.0**1023, 1.5 * 2.0**1022, 2.0**-1022, 1e-308, 1.0, 3.0, -7e300, 1e20],
}


@pytest.mark.parametrize("kind", ENDS)
def test_quotients_of_numbers_at_both_ends(kind: str) -> None:
    """The steps that LLVM emits for `x / y`, also for a denormal quotient with a divisor near the largest number."""
    division = floats.DIVISIONS[kind]
    ends = np.array(ENDS[kind], division.kind)
    with np.errstate(all="ignore"):
        x, y = (a.reshape(-1) for a in np.meshgrid(ends, ends))
        x, y = x[np.isfinite(x / y)], y[np.isfinite(x / y)]
        below, _ = floats.div_scale(y, y, x, kind)
        above, scaled = floats.div_scale(x, y, x, kind)
        inverse = division.kind(1) / below
        inverse = division.fma(division.fma(-below, inverse, division.kind(1)), inverse, inverse)
        quotient = above * inverse
        quotient = division.fma(division.fma(-below, quotient, above), inverse, quotient)
        rest = division.fma(-below, quotient, above)
        got = floats.div_fixup(floats.div_fmas(rest, inverse, quotient, scaled, kind), y, x, kind)
        want = x / y
    np.testing.assert_allclose(
        got, want, rtol=2 * np.finfo(division.kind).eps, atol=np.finfo(division.kind).tiny / 2**20
    )


def test_fused_products_of_f64() -> None:
    """One rounding: the low half of the product counts, and a sum beyond the largest number is infinite."""
    big, one = np.float64(2.0**53 + 2), np.float64(1)
    a = np.array([1 + 2.0**-30, big, 2.0**1000, np.inf, 0.0, -0.0])
    b = np.array([1 - 2.0**-30, one, 2.0**1000, 2.0, 3.0, 3.0])
    c = np.array([-1.0, -big, 1.0, 1.0, 0.0, 0.0])
    with np.errstate(all="ignore"):
        got = floats.fma64(a, b, c)
    np.testing.assert_array_equal(got, [-(2.0**-60), 0.0, np.inf, np.inf, 0.0, 0.0])


def test_what_comes_before_a_matrix_instruction_is_no_part_of_it() -> None:
    """`s_or_b64 exec, exec, s[0:1]`, `s_waitcnt lgkmcnt(2)`, `v_mfma_f32_32x32x64_f8f6f4`."""
    code = bytes.fromhex("7e00fe877fc28cbf0000aed324590202") + bytes(8)
    names = [decode(code[at : at + 24], at, GENERATIONS["gfx950"]).name for at in (0, 4, 8)]
    assert names == ["s_or_b64", "s_waitcnt", "v_mfma_f32_32x32x64_f8f6f4"]


SCALAR_FLOATS: dict[str, tuple[Any, Any]] = {
    "sqrt": (lambda i, s: i.v_s_sqrt_f32(s[6], s[4]), lambda a, b, c: np.sqrt(a)),
    "rsq": (lambda i, s: i.v_s_rsq_f32(s[6], s[4]), lambda a, b, c: 1 / np.sqrt(a)),
    "rcp of a negated one": (lambda i, s: i.v_s_rcp_f32(s[6], -s[4]), lambda a, b, c: -1 / a),
    "fmac": (lambda i, s: i.s_fmac_f32(s[6], s[4], s[5]), lambda a, b, c: a * b + c),
    "fmaak": (lambda i, s: i.s_fmaak_f32(s[6], s[4], s[5], literal=0x40400000), lambda a, b, c: a * b + 3),
    "fmamk": (lambda i, s: i.s_fmamk_f32(s[6], s[4], s[5], literal=0x40400000), lambda a, b, c: a * 3 + b),
    "maximum": (lambda i, s: i.s_maximum_f32(s[6], s[4], s[5]), lambda a, b, c: np.maximum(a, b)),
}


@pytest.mark.parametrize("name", SCALAR_FLOATS)
def test_floats_in_scalar_registers(name: str) -> None:
    """Operations of two waves, whose result does not depend on the active lanes."""
    instruction, wanted = SCALAR_FLOATS[name]
    i = instructions("gfx1201")
    g = gang(32, waves=2)
    values = np.array([[4.0, 0.25], [2.0, -8.0], [1.0, 16.0]], np.float32)
    g.s_f32[4:7] = values
    g.set_exec(np.zeros((2, 32), np.bool_))
    operation_of("gfx1201", instruction(i, i.s), 32).run(g)
    np.testing.assert_array_equal(g.s_f32[6], wanted(*values).astype(np.float32))


@pytest.mark.parametrize("bits", [32, 64])
def test_leading_bits_that_equal_the_sign(bits: int) -> None:
    """AMD's ISA guide, S_FLBIT_I32: -1 where all bits are the same."""
    i = instructions("gfx942")
    low, high = 1 << bits - 2, (1 << bits) - 1
    values = {0: -1, high: -1, 1: bits - 1, high - 1: bits - 1, low: 1, low << 1: 1, (1 << bits - 10) - 1: 10}
    g = gang(64, waves=len(values))
    for register in range(bits // 32):
        g.s_u32[4 + register] = [value >> 32 * register & 0xFFFFFFFF for value in values]
    count = i.s_flbit_i32(i.s[8], i.s[4]) if bits == 32 else i.s_flbit_i32_i64(i.s[8], i.s[4:5])
    operation_of("gfx942", count, 64).run(g)
    np.testing.assert_array_equal(g.s_i32[8], list(values.values()))


def test_a_number_that_a_later_chip_gave_to_another_instruction() -> None:
    """gfx90a's `v_mac_f32`, which LLVM uses to divide integers, has the opcode of gfx950's `v_dot2c_f32_bf16`."""
    i = instructions("gfx90a")
    g = gang(64)
    g.f32[1, 0], g.f32[2, 0] = np.arange(64), 1.0
    operation_of("gfx90a", i.v_dot2c_f32_bf16_e32(i.v[2], 0x4F800000, i.v[1]), 64).run(g)
    np.testing.assert_array_equal(g.f32[2, 0], np.arange(64, dtype=np.float32) * np.float32(2**32) + np.float32(1))


# Instructions of gfx90a with operands v1, v2 and v3, assembled with the tables of later chips.
SUMS_OF_PRODUCTS: dict[str, Any] = {
    "v_mad_f32": lambda i: (0xD1C1_0003 | (257 | 258 << 9 | 259 << 18) << 32).to_bytes(8, "little"),
    "v_mac_f32": lambda i: i.v_dot2c_f32_bf16_e32(i.v[3], i.v[1], i.v[2]),
    "v_madak_f32": lambda i: i.v_fmaak_f32_e32(i.v[3], i.v[1], i.v[2], literal=int(ADDEND.view(np.uint32))),
    "v_madmk_f32": lambda i: i.v_fmamk_f32_e32(i.v[3], i.v[1], i.v[3], literal=int(FACTOR.view(np.uint32))),
    "v_fma_f32": lambda i: i.v_fma_f32_e64(i.v[3], i.v[1], i.v[2], i.v[3]),
    "v_fmac_f32": lambda i: i.v_fmac_f32_e32(i.v[3], i.v[1], i.v[2]),
    "v_fma_mix_f32": lambda i: i.v_mad_mix_f32(i.v[3], i.v[1], i.v[2], i.v[3], opsel_hi=0, opsel_hi2=0),
}
FACTOR, ADDEND = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)


@pytest.mark.parametrize("name", SUMS_OF_PRODUCTS)
def test_sums_of_products_round_once_or_twice(name: str) -> None:
    """On gfx90a `v_mad_f32` and its variants round the product, so that the sum is 0 here; `v_fma_f32` and its variants
    do not. Later chips do not have the former, and gave some of their opcodes to the latter."""
    fused = "fma" in name
    for machine in ("gfx90a", "gfx942"):
        if machine == "gfx942" and name in ("v_mad_f32", "v_mac_f32"):
            continue
        data = SUMS_OF_PRODUCTS[name](instructions(machine))
        if machine == "gfx90a":
            assert decoded(machine, data).name == name
        g = gang(64)
        g.f32[1], g.f32[2], g.f32[3] = FACTOR, FACTOR, ADDEND
        operation_of(machine, data, 64).run(g)
        assert g.f32[3, 0, 5] == (2.0**-24 if fused or machine == "gfx942" else 0), machine


def test_a_denormal_is_zero_in_a_product_that_is_not_fused() -> None:
    g = gang(64)
    g.f32[1], g.f32[2], g.f32[3] = 1e-39, 1.0, 1e-39
    operation_of("gfx90a", SUMS_OF_PRODUCTS["v_mad_f32"](instructions("gfx90a")), 64).run(g)
    assert g.f32[3, 0, 0] == 0
    g.f32[3] = 1e-39
    operation_of("gfx90a", SUMS_OF_PRODUCTS["v_fma_f32"](instructions("gfx90a")), 64).run(g)
    assert g.f32[3, 0, 0] == np.float32(1e-39) + np.float32(1e-39)
