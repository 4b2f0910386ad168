"""Tuning: what is tried, that it is measured and kept, and that a database cannot lose or smuggle anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmlir
from qmlir.errors import TuningWarning, UsageError
from qmlir.targets import resolve
from qmlir.tuning import Database, Record, measure, search
from qmlir.tuning.database import bucket, key_of
from qmlir.tuning.search import candidates, conclude, emit, flags_of, space_of, tune, tuned_flags

TEXT = """
func.func @main(%x: tensor<32x64xi8>, %w: tensor<64x32xi8>) -> tensor<32x32xi32> {
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>
  } : (tensor<32x64xi8>, tensor<64x32xi8>) -> tensor<32x32xi32>
  return %0 : tensor<32x32xi32>
}
"""


def record(choice: dict[str, Any], seconds: float, baseline: float = 1.0, device: str = "d") -> Record:
    return Record(tuple(sorted(choice.items())), seconds, baseline, device)


RECORDS = st.builds(record, st.dictionaries(st.sampled_from("ab"), st.sampled_from(["x", "y"])),
                    st.sampled_from([0.5, 0.9, 1.0, 2.0]), st.just(1.0), st.sampled_from(["d", "e"]))  # fmt: skip
DATABASES = st.dictionaries(st.sampled_from(["k1", "k2", "k3"]), st.sets(RECORDS, min_size=1, max_size=3)).map(Database)


# ---- the database


@given(DATABASES, DATABASES, DATABASES)
def test_merging_is_associative_and_loses_nothing(a: Database, b: Database, c: Database) -> None:
    assert a.merged(b).merged(c) == a.merged(b.merged(c))
    assert a.merged(b) == b.merged(a)
    assert a.merged(a) == a
    for key in (*a.entries, *b.entries):
        assert a.merged(b).entries[key] == a.entries.get(key, set()) | b.entries.get(key, set())


@given(DATABASES)
def test_a_file_reads_back_and_is_sorted(tmp_path_factory: pytest.TempPathFactory, a: Database) -> None:
    path = tmp_path_factory.mktemp("db") / "t.json"
    a.write(path)
    assert Database.read(path) == a
    before = path.read_text()
    Database(dict(reversed(list(a.entries.items())))).write(path)
    assert path.read_text() == before


@pytest.mark.parametrize("text", [
    "", "{", "[]", "3", '{"format": 1}', '{"format": 1, "entries": []}', '{"format": 1, "entries": {"k": [3]}}',
    '{"format": 1, "entries": {"k": [{"choice": {"a": ["--flag"]}, "seconds": 1, "baseline": 1, "device": "d"}]}}',
    '{"format": 1, "entries": {"k": [{"choice": {}, "seconds": -1, "baseline": 1, "device": "d"}]}}',
    '{"format": 1, "entries": {"k": [{"choice": {}, "seconds": NaN, "baseline": 1, "device": "d"}]}}',
])  # fmt: skip
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UsageError, match=r"t\.json is no tuning database"):
        Database.read(tmp_path / "t.json")


def test_another_format_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"format": 2, "entries": {}}')
    with pytest.raises(UsageError, match="has format 2, but this version reads 1; tune again"):
        Database.read(tmp_path / "t.json")
    with pytest.raises(UsageError, match="cannot read"):
        Database.read(tmp_path / "none.json")


def test_only_what_is_clearly_faster_is_chosen() -> None:
    database = Database({"k": {record({"a": "x"}, 1.0), record({"a": "y"}, 0.99)}, "f": {record({"a": "y"}, 0.5)}})
    assert database.best("k") == {}
    assert database.best("f") == {"a": "y"}
    assert database.best("none") is None


def test_a_database_names_knobs_and_no_flags() -> None:
    cpu = resolve("cpu:x86-64-v3")
    assert flags_of(cpu, {"data_tiling": "off"}) == ("--iree-opt-data-tiling=false",)
    with pytest.raises(UsageError, match="has no choice data_tiling = '--evil'"):
        flags_of(cpu, {"data_tiling": "--evil"})
    with pytest.raises(UsageError, match=r"has no choice flag = .* \(knobs: data_tiling, ukernels, opt_level\)"):
        flags_of(cpu, {"flag": "--iree-opt-level=O3"})


def test_keys() -> None:
    row = {"op": "qmlir.scaled_matmul", "kind": "matmul", "batch": [], "m": 33, "n": 4, "k": 5, "lhs": "i8",
           "rhs": "i8", "acc": "i32"}  # fmt: skip
    cpu = resolve("cpu:x86-64")
    base = key_of(cpu, [row])
    assert base == key_of(cpu, [{**row, "m": 64}])
    changes = [{"m": 65}, {"m": None}, {"n": 8}, {"k": 8}, {"lhs": "ui8"}, {"op": "qmlir.conv2d_q"}, {"batch": [2]}]
    assert len({base, key_of(resolve("cpu:x86-64-v3"), [row]), *(key_of(cpu, [row | c]) for c in changes)}) == 9
    assert [bucket(m) for m in (None, 0, 1, 2, 3, 64, 65)] == [None, 1, 1, 2, 4, 64, 128]


def test_candidates_begin_with_the_default() -> None:
    cpu = resolve("cpu:x86-64-v3")
    knobs = space_of(cpu, [{"chosen": "stock"}])
    every = candidates(knobs)
    assert every[0] == {k.name: k.values[0] for k in knobs}
    assert flags_of(cpu, every[0]) == ()
    assert len(every) == len({json.dumps(c) for c in every}) == 12


# ---- the search


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three candidates are enough to see."""
    real = search.candidates
    monkeypatch.setattr(search, "candidates", lambda knobs: [c for c in real(knobs) if c["opt_level"] == "O0"][:3])


@pytest.mark.slow
def test_emit_measure_and_compile(few: None, tmp_path: Path) -> None:
    """In two steps, the second in a process that cannot import the compiler; interrupted in between."""
    source = tmp_path / "mm.mlir"
    source.write_text(TEXT)
    folder = tmp_path / "folder"
    plan = emit(source, folder, target="cpu", budget=1e-9)
    assert not any("file" in c for c in plan["candidates"]), "no time, no candidate"
    plan = emit(source, folder, target="cpu", budget=300)
    assert plan["candidates"][0]["file"] == "000.vmfb"
    stamp = (folder / "000.vmfb").stat().st_mtime_ns
    emit(source, folder, target="cpu", budget=300)
    assert (folder / "000.vmfb").stat().st_mtime_ns == stamp, "what is there is not compiled again"

    script = (
        "import sys; sys.modules['iree.compiler'] = None\n"
        "from pathlib import Path; from qmlir.tuning.measure import measure_folder\n"
        f"measure_folder(Path({str(folder)!r}), 20.0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    results = measure.read_json(folder / "results.json")
    assert all("seconds" in r for r in results.values())
    database, report = conclude(folder, "here")
    assert report.unmeasured == 0
    assert "best:" in str(report)
    path = tmp_path / "tuning.json"
    database.write(path)
    assert tuned_flags(source, Database.read(path), "cpu") is not None
    assert qmlir.compile(source, tuning=path).manifest["target"] == "cpu"

    source.write_text(TEXT + "\n")
    with pytest.raises(UsageError, match="holds candidates of another program, target or version"):
        emit(source, folder, target="cpu")


@pytest.mark.slow
def test_tune_is_never_worse_than_the_default(few: None, tmp_path: Path) -> None:
    source = tmp_path / "mm.mlir"
    source.write_text(TEXT)
    database, report = tune(source, tmp_path / "folder", target="cpu", budget=60)
    assert report.rows
    [key] = database.entries
    best = database.best(key)
    assert best is not None
    assert not best or min(r.ratio for r in report.rows) <= 0.98


def test_a_program_that_is_not_in_the_database_is_said_once(tmp_path: Path) -> None:
    Database().write(tmp_path / "t.json")
    with pytest.warns(TuningWarning, match=r"t\.json has no result for this program on cpu: qmlir tune finds one"):
        qmlir.compile(TEXT, tuning=tmp_path / "t.json")


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        measure.measure_folder(tmp_path, 1.0)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        measure.measure_folder(tmp_path, 1.0)
    (tmp_path / "plan.json").write_text('{"candidates": [{"name": "000", "choice": {}, "error": "no"}]}')
    with pytest.raises(UsageError, match="no default to compare with"):
        measure.measure_folder(tmp_path, 1.0)
