"""A case is translated exactly as it is written, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.case import CUT, SMALL, Case, UnknownField, fit
from conformance.judge import check
from conformance.program import Program, reference
from conformance.run import cases, run_case
from conformance.scheme import variants

SMALL_ONES = {
    c["id"]: c
    for c in cases()
    if c["id"]
    in ("etvk_q8ta_linear_1x64x32", "etvk_q8csw_conv2d_3x8x8_to_8_k3s1p0d1g1", "qmlir_w4a8_g32_int_zp",
        "bitblas_gptq_repack_1x256x256_g64", "aiter_triton_fp8_1x1x1", "aiter_gmm_10x2x3_G4",
        "etvk_choose_qparams_per_row_4x16", "aiter_conv2d_1x3x7x7_k8_3x3s1p1d1", "qmlir_moe_relu_f32",
        "etvk_coopmat_64x128x64_g64", "bitblas_i8xi8_1x768x768", "etvk_q8csw_4x64x32")
}  # fmt: skip


def translated(case: dict[str, Any]) -> list[Any]:
    return list(variants(case))


@pytest.mark.parametrize("name", SMALL_ONES)
def test_a_field_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(UnknownField, match=f"{name}: field 'swizzle' = 'zigzag' is not known"):
        translated({**SMALL_ONES[name], "swizzle": "zigzag"})


@pytest.mark.parametrize("name", SMALL_ONES)
def test_a_word_that_is_not_known_is_refused(name: str) -> None:
    """In any field, except those that name the case and say how upstream compares."""
    silent = {"id", "system", "source", "op", "tolerance", "data", "notes", "perf_only"}
    for field, value in SMALL_ONES[name].items():
        if field not in silent and isinstance(value, str):
            with pytest.raises(UnknownField, match="has no meaning"):
                translated({**SMALL_ONES[name], field: "something else"})


@pytest.mark.parametrize("change", [{"op": "outer_product"}, {"notes": "bias is subtracted"}, {"acc_dtype": "i16"},
                                    {"scales": {"z": 1.0}}], ids=str)  # fmt: skip
def test_what_a_result_may_depend_on_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownField):
        translated({**SMALL_ONES["etvk_q8ta_linear_1x64x32"], **change})


def test_a_geometry_that_contradicts_itself_is_refused() -> None:
    case = SMALL_ONES["etvk_q8csw_conv2d_3x8x8_to_8_k3s1p0d1g1"]
    with pytest.raises(UnknownField, match="the geometry gives an extent of 6, but the case says 7"):
        translated({**case, "conv": {**case["conv"], "Ho": 7}})


def test_every_alternative_is_met() -> None:
    """2 dtypes, 2 layouts, 4 activations, with and without a bias."""
    programs = [v.program.steps[0] for v in translated(SMALL_ONES["aiter_conv2d_1x3x7x7_k8_3x3s1p1d1"])]
    assert len(programs) == 4
    for attribute, count in (("out_dtype", 2), ("input_layout", 2), ("activation", 4)):
        assert len({p.attributes[attribute] for p in programs}) == count
    assert {"bias" in p.operands for p in programs} == {True, False}


def test_picks_meet_every_option() -> None:
    for sizes in ((2,), (3, 2), (2, 4, 2), (5, 3)):
        met: list[set[int]] = [set() for _ in sizes]
        for i in range(max(sizes)):
            c = Case({"id": "x", "op": "y"}, i)
            for seen, n in zip(met, sizes, strict=True):
                seen.add(c.pick(*range(n)))
        assert [len(s) for s in met] == list(sizes)


@pytest.mark.parametrize(("m", "n", "per"), [(3840, 4096, 4096), (1024, 24576, 1536), (8192, 7424, 8192),
                                             (512, 1280, 16 * 8192), (1, 320, 32768)])  # fmt: skip
def test_cuts_keep_what_is_ragged(m: int, n: int, per: int) -> None:
    a, b, cut = fit(m, n, per)
    assert (a % 16, b % 16) == (m % 16, n % 16)
    if m * n * per > CUT:
        assert a * b * per <= SMALL or max(a, b) < 32
        assert cut
    else:
        assert (a, b, cut) == (m, n, {})


@pytest.mark.parametrize("name", SMALL_ONES)
def test_the_judge_sees_a_wrong_result(name: str) -> None:
    """The reference passes; each step with one element changed fails. Codes change by 2, because 1 may be allowed."""
    for v in translated(SMALL_ONES[name]):
        p = v.program
        made = evaluated(p)
        check(p, made)
        for i, result in enumerate(made):
            if not result.size:
                continue
            wrong = [x.copy() for x in made]
            at = (0,) * result.ndim
            # Another code, or a float that is off by more than half of the largest.
            other = result[at] ^ 2 if result.dtype.kind in "iu" else result[at] + np.abs(result).max() / 2 + 1
            wrong[i][at] = other
            with pytest.raises(AssertionError):
                check(p, wrong)


def evaluated(p: Program) -> list[Any]:
    values = dict(p.arrays)
    for s in p.steps:
        values.update(zip(s.results, reference(s, values), strict=True))
    return [values[n] for n in p.results()]


def test_a_refusal_is_recorded_with_its_reason() -> None:
    """The reason is the verifier's message: K = 2^18 overflows an exact i32 sum."""
    case = next(c for c in cases() if c["id"] == "bitblas_i8xi8_1x768x768")
    row = run_case({**case, "K": 1 << 18, "N": 1}, "cpu")
    assert row["status"] == "refused"
    assert "the exact i32 sum over K = 262144 can reach" in row["reason"]
