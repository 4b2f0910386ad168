"""Programs for this host use AMX if Linux grants its tiles and the self-test of its kernels passes; other kernels are
chosen for products on which AMX would be slower."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

import qmlir
from qmlir.compiler import self_test
from qmlir.compiler.choices import space_of
from qmlir.core.cache import Cache
from qmlir.errors import UsageError
from qmlir.targets import backend_of, resolve
from qmlir.targets.cpu import host
from qmlir.targets.strategy import chosen_strategies

WITH_AMX = {*(f"avx512{part}" for part in ("f", "bw", "vl", "vnni", "bf16")), "avx2", "fma", "avx", "f16c",
            "amx-tile", "amx-int8", "amx-bf16"}  # fmt: skip


@pytest.fixture
def a_host_with_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_features", lambda: frozenset(WITH_AMX))
    monkeypatch.setattr(host, "tiles_refused", lambda: "")
    monkeypatch.setattr(host, "tester", lambda features: {})


PRODUCT = """
func.func @main(%lhs: tensor<{m}x256x{dtype}>) -> tensor<{m}x256x{out}> {{
  %rhs = arith.constant dense<1> : tensor<256x256xi8>
  %scale = arith.constant dense<1.0> : tensor<256x1xf32>
  %0 = "qmlir.scaled_matmul"(%lhs, %rhs, %scale) {{
    operand_names = ["lhs", "rhs", "rhs_scale"], lhs_dtype = "{dtype}", rhs_dtype = "{code}", out_dtype = "{out}",
    {more} rhs_transposed = true
  }} : (tensor<{m}x256x{dtype}>, tensor<256x256xi8>, tensor<256x1xf32>) -> tensor<{m}x256x{out}>
  return %0 : tensor<{m}x256x{out}>
}}
"""


def answers(m: int | str, dtype: str = "i8") -> tuple[str, dict[str, str]]:
    """The strategy that `explain` for `cpu` chooses, and the reasons why the others are not accepted."""
    code, more = ("i8", "") if dtype == "i8" else ("i4", 'compute_dtype = "f32",')
    text = PRODUCT.format(m=m, dtype=dtype, out="f32", code=code, more=more)
    (row,) = qmlir.explain(text, target="cpu").contractions
    return row["chosen"], {a["strategy"]: a["reason"] for a in row["answers"] if not a["accepted"]}


@pytest.mark.usefixtures("a_host_with_amx")
def test_tiles_are_chosen_where_they_are_faster() -> None:
    assert answers(64)[0] == answers("?")[0] == "amx-int8"
    chosen, reasons = answers(1)
    assert chosen == "avx512-vnni"
    assert reasons["amx-int8"].startswith("estimated ")
    assert ", avx512-vnni " in reasons["amx-int8"]
    assert answers(64, "bf16")[0] == "amx-bf16"
    assert answers(1, "bf16")[0] == "avx512-fma"
    assert resolve("cpu").summary.endswith("the kernels for AMX have passed their test")


@pytest.mark.usefixtures("a_host_with_amx")
@pytest.mark.parametrize(("m", "other"), [(64, "avx512-vnni"), (1, "amx-int8")])
def test_which_of_both_is_a_knob(m: int, other: str) -> None:
    """AMX can be chosen even if the estimates prefer vector instructions."""
    rows = qmlir.explain(PRODUCT.format(m=m, dtype="i8", out="f32", code="i8", more=""), target="cpu").contractions
    knobs = {knob.name: knob.values for knob in space_of(resolve("cpu"), rows)}
    assert other in knobs["strategy"]
    assert knobs["chunk_rows"][0] == 256
    assert {128, 24} <= set(_accepted("chunk_rows", (128, 24, 7)))


def _accepted(knob: str, values: tuple[int, ...]) -> list[int]:
    """The values of a knob that a choice may have."""
    found = []
    for value in values:
        with suppress(UsageError):
            chosen_strategies(backend_of(resolve("cpu")).strategies(resolve("cpu")), {knob: value})
            found.append(value)
    return found


@pytest.mark.usefixtures("a_host_with_amx")
@pytest.mark.parametrize("why", ["its kernel gives wrong results", "its test ended with SIGILL"])
def test_kernels_that_fail_are_not_used(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(host, "tester", lambda features: {"amx-int8": why})
    chosen, reasons = answers(64)
    assert chosen == "avx512-vnni"
    assert reasons["amx-int8"] == f"amx-int8 is not used on this host: {why}"
    assert answers(64, "bf16")[0] == "amx-bf16"
    assert "amx-int8" not in resolve("cpu").capabilities.cpu_features


@pytest.mark.usefixtures("a_host_with_amx")
def test_where_every_kernel_fails_none_is_said_to_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        host, "tester", lambda features: dict.fromkeys(host.TILE_FEATURES, "its kernel gives wrong results")
    )
    assert "passed" not in resolve("cpu").summary


def test_every_kernel_for_tiles_has_a_test() -> None:
    """A host with AMX-FP16 would have used its kernel untested. Other kernels pass the same self-test."""
    assert self_test._TESTS.keys() == host.TILE_FEATURES
    if "avx512f" in host.host_features():
        assert self_test._half("f16", "avx512-fma") == self_test._half("bf16", "avx512-fma") == ""


@pytest.mark.usefixtures("a_host_with_amx")
def test_tiles_that_linux_refuses_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "tiles_refused", lambda: "arch_prctl: Operation not permitted")
    chosen, reasons = answers(64)
    assert chosen == "avx512-vnni"
    refused = "the system refuses its tiles: arch_prctl: Operation not permitted"
    assert f"amx-int8 is not used on this host: {refused}" in reasons["amx-int8"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -ILL $$", {"amx-bf16": "its test ended with SIGILL", "amx-int8": "its test ended with SIGILL"}),
        ("echo 'amx-bf16 '; echo no tiles >&2; exit 3",
         {"amx-bf16": "", "amx-int8": "its test ended with exit code 3, no tiles"}),
        ("echo 'amx-bf16 '; echo 'amx-int8 its kernel gives wrong results'",
         {"amx-bf16": "", "amx-int8": "its kernel gives wrong results"}),
    ],
)  # fmt: skip
def test_a_process_that_tests_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: dict[str, str]
) -> None:
    """Whatever happens to the process, the caller goes on and knows for each feature whether it may be used. A machine
    is tested once."""
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    features = frozenset({"amx-tile", *said})
    assert self_test.known_or_tested.__wrapped__(features) == said
    python.unlink()
    assert not Cache(tmp_path).entries(), "what was found is no program"
    assert self_test.known_or_tested.__wrapped__(features) == said


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"amx-int8": ""}', '{"amx-int8": 1, "amx-bf16": ""}'])
def test_a_damaged_outcome_is_tested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("QMLIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    features = frozenset({"amx-int8", "amx-bf16"})
    said = self_test.known_or_tested.__wrapped__(features)
    assert said == dict.fromkeys(features, "its test ended with exit code 1")
    (file,) = Cache(tmp_path).tests("").parent.iterdir()
    file.write_text(text)
    assert self_test.known_or_tested.__wrapped__(features) == said
    assert file.read_text() != text


@pytest.mark.skipif("amx-int8" not in host.host_features() or host.tiles_refused() != "", reason="the host has no AMX")
def test_a_host_that_has_amx_uses_it() -> None:
    """The results are from this test run: its cache is new, and the first compilation has run the self-tests."""
    assert set(self_test.known_or_tested(host.host_features()).values()) == {""}
    assert host.withheld() == {}
    assert answers(64)[0] == "amx-int8"
