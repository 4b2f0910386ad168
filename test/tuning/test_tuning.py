"""Tuning: the candidates, their measurement and storage, and that a database loses nothing and cannot inject flags."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support.programs import product

import qmlir
from qmlir.compiler.choices import HOPELESS, combinations, flags_of, ranked, space_of
from qmlir.compiler.stages import default_pipeline
from qmlir.compiler.tuning_database import bucket, key_of
from qmlir.errors import TuningWarning, UsageError
from qmlir.targets import resolve
from qmlir.targets.strategy import parse_choice
from qmlir.tools.timing import Timing
from qmlir.tuning import Database, Record, measure, search
from qmlir.tuning.cluster import measure_on_cluster
from qmlir.tuning.search import conclude, emit, tune

ROOT = Path(__file__).resolve().parents[2]
TEXT = product(32, 64, 32)


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
    with pytest.raises(UsageError, match=r"t\.json is not a tuning database"):
        Database.read(tmp_path / "t.json")


def test_a_file_with_an_old_name_of_a_strategy_is_read(tmp_path: Path) -> None:
    row = {"choice": {"strategy": "by-rows", "unroll": 4}, "seconds": 0.5, "baseline": 1.0, "device": "d"}
    (tmp_path / "t.json").write_text(json.dumps({"format": 1, "entries": {"k": [row]}}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Database.read(tmp_path / "t.json").best("k") == {"strategy": "multi-version-m", "unroll": 4}


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
    with pytest.raises(UsageError, match="unknown choice data_tiling = '--evil'; known: target, off"):
        flags_of(cpu, {"data_tiling": "--evil"})
    with pytest.raises(UsageError, match=r"unknown choice flag = '--iree-opt-level=O3'; known: strategy, "):
        flags_of(cpu, {"flag": "--iree-opt-level=O3"})
    with pytest.raises(UsageError, match="cannot read the choice 'chunk_rows': write name:value"):
        parse_choice("chunk_rows")


def test_keys() -> None:
    row = {"op": "qmlir.scaled_matmul", "kind": "matmul", "batch": [], "m": 33, "n": 4, "k": 5, "lhs": "i8",
           "rhs": "i8", "acc": "i32"}  # fmt: skip
    cpu = resolve("cpu:x86-64")
    base = key_of(cpu, [row])
    assert base == key_of(cpu, [{**row, "m": 64}])
    changes = [{"m": 65}, {"m": None}, {"n": 8}, {"k": 8}, {"lhs": "ui8"}, {"op": "qmlir.conv2d_q"}, {"batch": [2]}]
    assert len({base, key_of(resolve("cpu:x86-64-v3"), [row]), *(key_of(cpu, [row | c]) for c in changes)}) == 9
    assert [bucket(m) for m in (None, 0, 1, 2, 3, 64, 65)] == [None, 1, 1, 2, 4, 64, 128]


WEIGHTS = """
func.func @main(%x: tensor<128x512xi8>) -> tensor<128x256xi32> {
  %w = arith.constant dense<1> : tensor<512x256xi8>
  %0 = "qmlir.scaled_matmul"(%x, %w) {
    operand_names = ["lhs", "rhs"]
  } : (tensor<128x512xi8>, tensor<512x256xi8>) -> tensor<128x256xi32>
  return %0 : tensor<128x256xi32>
}
"""


@pytest.mark.slow
def test_candidates_of_a_kernel_follow_its_model() -> None:
    """The default is first, then the order is by estimate; no plan twice, none hopeless, no flag for a qmlir kernel."""
    zen = resolve("cpu:znver4")

    def explained(choice: dict[str, Any]) -> qmlir.Explanation:
        return qmlir.explain(WEIGHTS, target="cpu:znver4", choice=choice)

    knobs = space_of(zen, explained({}).contractions)
    assert {k.name for k in knobs} >= {"strategy", "chunk_rows", "chunk_panels", "lhs_bytes", "data_tiling"}
    every = ranked(zen, knobs, explained)
    assert every[0] == {}
    plans, costs = [], []
    for choice in every:
        [row] = explained(choice).contractions
        [answer] = [a for a in row["answers"] if a["strategy"] == row["chosen"]]
        plans.append(json.dumps([row["chosen"], answer["plan"], flags_of(zen, choice)]))
        if "cost" in answer:
            costs.append(answer["cost"])
            assert not flags_of(zen, choice)
    assert len(set(plans)) == len(plans) > 5
    assert costs[1:] == sorted(costs[1:])
    assert max(costs) <= HOPELESS * costs[0]
    assert len(every) < len(combinations(knobs)) / 2


def test_a_choice_reaches_the_plan_and_the_key(tmp_path: Path) -> None:
    chosen = {"chunk_rows": 24, "strategy": "avx-vnni"}
    [row] = qmlir.explain(WEIGHTS, target="cpu:znver4", choice=chosen).contractions
    assert row["chosen"] == "avx-vnni"
    [answer] = [a for a in row["answers"] if a["strategy"] == "avx-vnni"]
    assert answer["plan"]["chunk"][0] == 24
    text = default_pipeline(resolve("cpu:znver4"), choice=chosen)
    assert "qmlir-select{target=cpu:znver4 choice=chunk_rows:24|strategy:avx-vnni}" in text
    assert parse_choice("chunk_rows:24|strategy:avx-vnni") == chosen
    known = r"256, 64, 128, 512, 96, 24, 48, 192$"
    with pytest.raises(UsageError, match=rf"unknown choice chunk_rows = 7; known: {known}"):
        qmlir.explain(WEIGHTS, target="cpu:znver4", choice={"chunk_rows": 7})


def test_what_ships_is_a_sound_database() -> None:
    """Every choice in it is one that its target declares. Entries of the user's file take precedence over it."""
    shipped = Database.of("shipped")
    for key, records in shipped.entries.items():
        target = resolve(key.partition(";")[0].partition(" ")[0])
        for r in records:
            flags_of(target, dict(r.choice))


# ---- the search


def _kernels_first(choice: dict[str, Any]) -> int:
    """Sort key: another kernel is another program on every CPU; chunk sizes may not change so small a product."""
    return 0 if not choice else 1 if "strategy" in choice else 2


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program and a folder of its first candidates, three of which are different programs."""
    folder = tmp_path_factory.mktemp("emitted")
    source = folder / "mm.mlir"
    source.write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        real = search.ranked
        patch.setattr(search, "ranked", lambda *given: sorted(real(*given), key=_kernels_first)[:5])
        plan = emit(source, folder / "all", target="cpu", budget=1e-9)
        assert not any("file" in c for c in plan["candidates"]), "no time, no candidate"
        plan = emit(source, folder / "all", target="cpu", budget=300)
    assert plan["candidates"][0]["file"] == "000.vmfb"
    return source, folder / "all"


@pytest.fixture
def folder(emitted: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the candidates, with nothing measured."""
    return Path(shutil.copytree(emitted[1], tmp_path / "folder"))


class Timer:
    """Replaces the measurement; is interrupted after `limit` comparisons."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit, self.pairs = limit, 0

    def __call__(self, functions: Any, *, seconds: float) -> list[Any]:
        for f in functions:
            f()
        self.pairs += 1
        if self.pairs > self.limit:
            raise KeyboardInterrupt
        return [Timing((1.0 + 0.1 * i,)) for i in range(len(functions))]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2])
def test_interrupted_and_resumed_with_the_same_result(limit: int, folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                      tmp_path: Path) -> None:  # fmt: skip
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    monkeypatch.setattr(measure, "alternate", Timer())
    measure.measure_folder(whole, 60.0)
    monkeypatch.setattr(measure, "alternate", Timer(limit))
    with pytest.raises(KeyboardInterrupt):
        measure.measure_folder(folder, 60.0)
    assert len(measure.read_results(folder)) == limit
    second = Timer()
    monkeypatch.setattr(measure, "alternate", second)
    measure.measure_folder(folder, 60.0)
    assert second.pairs == len(measure.read_results(whole)) - limit, "what was measured is not measured again"
    assert conclude(folder, "d")[0] == conclude(whole, "d")[0]


@pytest.mark.slow
def test_emit_goes_on_where_it_stopped(emitted: tuple[Path, Path], tmp_path: Path) -> None:
    source, folder = emitted
    stamp = (folder / "000.vmfb").stat().st_mtime_ns
    before = (folder / "plan.json").read_text()
    emit(source, folder, target="cpu", budget=300)
    assert (folder / "000.vmfb").stat().st_mtime_ns == stamp, "what is there is not compiled again"
    assert (folder / "plan.json").read_text() == before
    other = tmp_path / "other.mlir"
    other.write_text(TEXT + "\n")
    with pytest.raises(UsageError, match="holds candidates of another program, target or version"):
        emit(other, folder, target="cpu")


RUNTIME_ONLY = ("numpy", "numpy.libs", "ml_dtypes", "platformdirs", "filelock", "rich", "markdown_it", "mdurl",
                "pygments", "typing_extensions.py", "iree/runtime", "iree/_runtime", "iree/_runtime_libs",
                "iree_base_runtime.libs")  # fmt: skip


@pytest.fixture(scope="module")
def runtime_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment that has the package and the runtime, but no compiler."""
    place = tmp_path_factory.mktemp("runtime")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    [site] = (place / "venv" / "lib").glob("python*/site-packages")
    for name in RUNTIME_ONLY:
        found = next((Path(p) / name for p in sys.path if p and (Path(p) / name).exists()), None)
        if found is not None:
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).symlink_to(found)
    shutil.copytree(ROOT / "qmlir", site / "qmlir")
    gone = subprocess.run([python, "-c", "import iree.compiler"], capture_output=True, text=True, check=False)
    assert "No module named 'iree.compiler'" in gone.stderr
    return python


@pytest.mark.slow
def test_two_steps_on_two_environments(
    emitted: tuple[Path, Path], folder: Path, runtime_python: Path, tmp_path: Path
) -> None:
    """Compiled in this environment, measured in one without a compiler, merged and compiled in this one."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [runtime_python, "-m", "qmlir", "tune", "--measure", folder, "--budget", "20s", "--database"]
    ran = subprocess.run([*command, tmp_path / "there.json"], env=clean, cwd=tmp_path, capture_output=True, text=True,
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "0 left" in ran.stdout
    assert "best:" in ran.stdout
    assert all("seconds" in r for r in measure.read_results(folder).values())
    Database({"k": {record({}, 1.0)}}).write(tmp_path / "here.json")
    here = [sys.executable, "-m", "qmlir", "tune", "--merge", tmp_path / "there.json", "--database"]
    subprocess.run([*here, tmp_path / "here.json"], check=True, capture_output=True)
    both = Database.read(tmp_path / "here.json")
    assert set(both.entries) == {"k", *Database.read(tmp_path / "there.json").entries}
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        assert qmlir.compile(emitted[0], tuning=tmp_path / "here.json").manifest.target == "cpu"


@pytest.mark.slow
def test_the_workers_of_a_cluster_measure(folder: Path, tmp_path: Path) -> None:
    """Two processes of a local Dask cluster, used through the command line."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        command = [sys.executable, "-m", "qmlir", "tune", "--measure", folder, "--dask", cluster.scheduler_address]
        ran = subprocess.run([*command, "--budget", "10s", "--database", tmp_path / "t.json"], capture_output=True,
                             text=True, check=False)  # fmt: skip
        assert ran.returncode == 0, ran.stderr
    results = measure.read_results(folder)
    assert len(results) == sum("file" in c for c in json.loads((folder / "plan.json").read_text())["candidates"])
    assert all("seconds" in r and r["device"] for r in results.values())
    [records] = Database.read(tmp_path / "t.json").entries.values()
    assert len(records) == len(results)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(UsageError, match="need one thread each"),
    ):
        measure_on_cluster(folder, client, 1.0)


@pytest.mark.slow
def test_tune_is_never_worse_than_the_default(emitted: tuple[Path, Path], folder: Path) -> None:
    database, report = tune(emitted[0], folder, target="cpu", budget=60)
    assert report.rows
    [key] = database.entries
    best = database.best(key)
    assert best is not None
    assert not best or min(r.ratio for r in report.rows) <= 0.98


@pytest.mark.slow
def test_another_result_is_no_candidate(emitted: tuple[Path, Path], folder: Path, tmp_path: Path) -> None:
    """A program with another result is not chosen, however fast it is."""
    wrong = qmlir.compile(TEXT.replace("{\n    operand", '{\n    lhs_dtype = "u8", operand', 1))
    plan = measure.read_plan(folder)
    other = next(c for c in plan["candidates"][1:] if "file" in c)
    wrong.save(folder / other["file"])
    assert "differs from the default's" in measure.measure_folder(folder, 20.0)[other["name"]]["error"]


def test_code_of_another_machine_is_not_measured() -> None:
    with pytest.raises(UsageError, match=r"compiled for the CPU Z80, but this one is .*--target cpu:NAME"):
        measure.check_host("Z80")
    measure.check_host("")


def test_a_program_that_is_not_in_the_database_is_said_once(tmp_path: Path) -> None:
    Database().write(tmp_path / "t.json")
    with pytest.warns(TuningWarning, match=r"t\.json has no result for this program on cpu: qmlir tune finds one"):
        qmlir.compile(TEXT, tuning=tmp_path / "t.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        qmlir.compile(TEXT, tuning=tmp_path / "t.json")


@pytest.mark.parametrize(("text", "message"), [
    ("{", "is damaged"), ("[]", "is damaged"), ('{"candidates": 3}', "is damaged"),
    ('{"candidates": [{"name": "000", "choice": {}, "error": "no"}], HEAD}', "no default to compare with: no"),
    ('{"candidates": [{"name": "000", "choice": {}, "file": "../x"}], HEAD}', "is not in the folder"),
    ('{"candidates": [{"name": "000", "choice": {"a": []}, "file": "x"}], HEAD}', "values that are not plain ones"),
])  # fmt: skip
def test_a_folder_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        measure.measure_folder(tmp_path, 1.0)
    head = '"key": "k", "target": "cpu", "function": "main", "size": 1, "sha256": "0"'
    (tmp_path / "plan.json").write_text(text.replace("HEAD", head))
    with pytest.raises(UsageError, match=message):
        measure.measure_folder(tmp_path, 1.0)


def test_a_damaged_candidate_is_compiled_again(tmp_path: Path) -> None:
    path = qmlir.compile(TEXT).save(tmp_path / "000.vmfb")
    assert search._code_hash(path) is not None
    path.write_bytes(path.read_bytes()[:2000])
    assert search._code_hash(path) is None


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="has no function 'none'; it has main"):
        measure.Caller(qmlir.compile(TEXT), "none", 4)


def test_a_damaged_plan_is_said(tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(TEXT)
    (tmp_path / "plan.json").write_text('{"candidates": [3]}')
    with pytest.raises(UsageError, match=r"plan\.json is damaged"):
        emit(source, tmp_path, target="cpu")
