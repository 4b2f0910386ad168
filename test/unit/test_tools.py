"""`explain`, `inspect`, `bench` as functions, and what the commands share."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs import product

import qmlir
from qmlir.cli.progress import Progress
from qmlir.errors import UsageError
from qmlir.runtime import inputs
from qmlir.spec import Signature, TensorSpec as T
from qmlir.targets.strategy import answer_text, facts_text, seconds_text
from qmlir.tools import measure, timing

TEXT = product(64, 256, 128)


# ---- explain


def test_every_strategy_of_a_target_is_explained() -> None:
    found = qmlir.explain(TEXT, target="rocm:gfx942")
    [row] = found.contractions
    assert (row["op"], row["m"], row["n"], row["k"]) == ("qmlir.scaled_matmul", 64, 128, 256)
    assert row["chosen"] == "mma"
    assert {a["strategy"] for a in row["answers"]} >= {"mma", "stock"}
    text = str(found)
    assert "matmul M 64 x N 128 x K 256, i8 x i8 -> i32" in text
    assert "  chosen    mma: route compilation_info, mma MFMA_I32_16x16x32_I8" in text
    assert "at least " in text, "an estimate, where the target has figures"
    assert all(len(line) <= 60 for line in found.text(60).splitlines())
    assert "MFMA_I32_16x16x32_I8" in found._repr_html_()


def test_a_refusal_is_explained_in_the_words_of_the_error() -> None:
    text = """func.func @main(%x: tensor<4x4xf64>, %z: tensor<4x4xf64>) -> tensor<4x4xf64> {
      %0 = linalg.matmul ins(%x, %x : tensor<4x4xf64>, tensor<4x4xf64>) outs(%z : tensor<4x4xf64>) -> tensor<4x4xf64>
      return %0 : tensor<4x4xf64>
    }"""
    found = qmlir.explain(text, target="vulkan:ada")
    assert not found.ok
    with pytest.raises(qmlir.QmlirError) as error:
        qmlir.compile(text, target="vulkan:ada", cache=False)
    for answer in found.contractions[0]["answers"]:
        line = answer_text(answer)
        assert line in str(error.value)
        assert line in str(found)


def test_an_artifact_is_explained_by_its_manifest(tmp_path: Path) -> None:
    path = qmlir.compile(TEXT, target="cpu:x86-64").save(tmp_path / "a.vmfb")
    found = qmlir.explain(path)
    assert found.target == "cpu:x86-64"
    assert found.contractions[0]["chosen"] == "stock"
    with pytest.raises(UsageError, match="no strategies to choose"):
        qmlir.explain(TEXT, start="configured")


def test_words() -> None:
    facts = {
        "route": "im2col",
        "workgroup": [16, 32],
        "padded": True,
        "tiled": False,
        "f16": {"mma": "A"},
        "slow": "it is",
    }
    assert facts_text(facts) == "route im2col, workgroup 16 x 32, padded, f16: mma A, slow: it is"
    assert [seconds_text(s) for s in (2.5, 0.0125, 3.21e-5, 4e-9)] == ["2.5 s", "12.5 ms", "32.1 us", "4 ns"]


# ---- inspect


def test_inspect_and_html(tmp_path: Path) -> None:
    artifact = qmlir.compile(TEXT, target="cpu:x86-64-v3")
    artifact.save(tmp_path / "<i>.vmfb")
    facts = qmlir.inspect(tmp_path / "<i>.vmfb").to_json()
    assert facts["target"] == "cpu:x86-64-v3"
    assert facts["schemes"][0]["lhs"] == "i8"
    assert facts["ops"] == {"qmlir.scaled_matmul": 1}
    assert facts["needs"]["driver"] == "local-task"
    html = artifact._repr_html_()
    assert "cpu:x86-64-v3" in html
    assert "<i>.vmfb" not in html
    of_source = qmlir.inspect(TEXT)
    assert of_source.facts["functions"] == {"main": "(arg0: i8[64, 256], arg1: i8[256, 128]) -> (i32[64, 128])"}


@pytest.mark.slow
def test_a_loaded_file_finds_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.mlir").write_text(TEXT)
    qmlir.compile("a.mlir", target="cpu:x86-64-v3").save("a.vmfb")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    loaded = qmlir.Artifact.open(tmp_path / "a.vmfb")
    assert "linalg.generic" in loaded.source("linalg")
    with pytest.raises(UsageError, match="no dispatch is called 'x'"):
        loaded.source("dispatch", "x")
    (tmp_path / "a.mlir").write_text(TEXT + "\n")
    with pytest.raises(UsageError, match=r"compiled from a\.mlir, which has changed since"):
        qmlir.Artifact.open(tmp_path / "a.vmfb").source("linalg")
    qmlir.compile(TEXT, target="cpu:x86-64-v3").save(tmp_path / "b.vmfb")
    with pytest.raises(UsageError, match="compiled from memory"):
        qmlir.Artifact.open(tmp_path / "b.vmfb").source("linalg")


# ---- bench


def test_bench_alternates_and_states_its_limits() -> None:
    calls: list[str] = []
    slow = lambda: (calls.append("slow"), time.sleep(2e-3))  # noqa: E731
    fast = lambda: calls.append("fast")  # noqa: E731
    a, b = timing.alternate([slow, fast], rounds=5, warmup=1)
    assert len(a.samples) == len(b.samples) == 5
    assert a.median > b.median
    assert a.p10 <= a.median <= a.p90
    first = [i for i, name in enumerate(calls[4:]) if name == "slow"]
    assert 1 < len(first) < len(calls), "in alternation"

    report = qmlir.bench(qmlir.compile(TEXT), rounds=5, limits=measure.Limits(1e12, 1e10, "as stated"))
    [row] = report.rows
    assert row.operations == 2 * 64 * 256 * 128
    assert row.traffic == 64 * 256 + 256 * 128 + 4 * 64 * 128
    assert row.bound == pytest.approx(max(row.operations / 1e12, row.traffic / 1e10))
    assert row.share == pytest.approx(row.bound / row.timing.median)
    assert "roofline: as stated" in str(report)
    assert report.to_csv().splitlines()[0].startswith("name,target,median")
    assert "<td" in report._repr_html_()
    with pytest.raises(UsageError, match="no program"):
        qmlir.bench()


@pytest.mark.slow
def test_a_peer_at_the_same_work(tmp_path: Path) -> None:
    """ONNX Runtime is measured with the same arguments and threads as qmlir."""
    onnx = pytest.importorskip("onnx")
    weight = onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 8])
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    report = qmlir.bench(path, against="onnxruntime", rounds=5, limits=measure.Limits(1e12, 1e10, "as stated"))
    ours, peer = report.rows
    assert (ours.name, peer.name, peer.share) == (str(path), "onnxruntime", None)
    assert report.ratio(peer) > 0
    assert "onnxruntime" in str(report)
    with pytest.raises(UsageError, match="'onnxruntime' runs ONNX models"):
        qmlir.bench(TEXT, against="onnxruntime")
    code = ("import onnxruntime, qmlir, sys; onnxruntime.set_global_thread_pool_sizes(1, 1); "
            "print(qmlir.bench(sys.argv[1], against='onnxruntime', rounds=2))")  # fmt: skip
    of_one_pool = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert of_one_pool.returncode == 0, of_one_pool.stderr
    saved = qmlir.compile(TEXT).save(tmp_path / "a.vmfb")
    with pytest.raises(UsageError, match=r"onnxruntime runs ONNX models: give the \.onnx file instead of .*a\.vmfb"):
        qmlir.bench(saved, against="onnxruntime")


def test_limits_of_targets() -> None:
    gpu = qmlir.compile(TEXT, target="rocm:gfx942")
    found = measure.limits_of(gpu)
    assert found.source.startswith("published, ")
    assert found.operations is not None
    assert found.bandwidth is not None


# ---- generated arguments


def test_arguments_fit_their_roles() -> None:
    signature = Signature((("x", T((None, 8), "i8")), ("arg1", T((4, 1), "f32")), ("ids", T((4, 2), "i32")),
                           ("sizes", T((3,), "i32"))), ())  # fmt: skip
    roles: list[dict[str, Any]] = [{"role": "lhs"}, {"role": "lhs_scale"}, {"role": "expert_ids", "limit": 5},
                                   {"role": "group_sizes", "rows_of": 0}]  # fmt: skip
    x, scale, ids, sizes = inputs.make(signature, list(roles), size=7)
    assert x.shape == (7, 8)
    assert (scale > 0).all()
    assert ids.min() >= 0
    assert ids.max() < 5
    assert sizes.sum() == 7
    again = inputs.make(signature, list(roles), size=7)
    assert all((a == b).all() for a, b in zip([x, scale, ids, sizes], again, strict=True))
    with pytest.raises(UsageError, match="has to be given: -i FILE"):
        inputs.make(Signature((("indices", T((4,), "i32")),), ()), [{"role": "indices"}])
    with pytest.raises(UsageError, match="has to add up to rows that are computed"):
        inputs.make(Signature((("g", T((4,), "i32")),), ()), [{"role": "group_sizes", "rows_of": None}])


def test_the_manifest_tells_the_roles() -> None:
    specs = {"lhs": T((None, 16), "i8"), "rhs": np.zeros((16, 8), np.int8), "lhs_scale": T((None, 1), "f32")}
    artifact = qmlir.ops.scaled_matmul.compile(**specs)
    assert [r["role"] for r in artifact.manifest.arguments["main"]] == ["lhs", "lhs_scale"]


# ---- progress of long work


def on_terminal(command: list[str], **env: str) -> tuple[str, int]:
    """The output of a command on a terminal of 80 columns (both streams), and its exit code."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm", **env}
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(master)
    return seen.decode(errors="replace"), child.wait()


SLOW_CHILD = """
import importlib, sys
from qmlir.cli import child, progress
progress.AFTER = 0.2
sys.exit(child.run_in_child(lambda: importlib.import_module({module!r}) and 0, ["qmlir"], "x", quiet={quiet}))
"""


@pytest.mark.sweep(fast=2, slow=60)
@pytest.mark.parametrize("quiet", [False, True])
def test_a_bar_on_a_terminal_and_nowhere_else(quiet: bool, tmp_path: Path) -> None:
    (tmp_path / "slow_child.py").write_text(
        "import time\nfrom qmlir.cli.child import breadcrumb\n"
        "breadcrumb('layer 3 of 12\\n')\ntime.sleep(1.2)\nprint('done')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    script = SLOW_CHILD.format(module="slow_child", quiet=quiet)
    seen, code = on_terminal([sys.executable, "-c", script], PYTHONPATH=path)
    assert code == 0
    assert ("layer 3 of 12" in seen) != quiet
    assert seen.rstrip().splitlines()[-1].endswith("done")
    piped = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
                           text=True, check=True)  # fmt: skip
    assert piped.stdout == "done\n"
    assert piped.stderr == ""


def test_progress_knows_nothing_of_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(lambda: "text")
    assert not progress.active
    progress.update()
    assert capsys.readouterr().err == ""
