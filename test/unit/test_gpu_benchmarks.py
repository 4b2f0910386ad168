"""The folder that benchmarks.gpu builds, run as far as a machine without a GPU can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.build import CHECK_TARGETS, TARGET, build, constants, write_runner
from benchmarks.gpu.checks import checks
from benchmarks.gpu.works import DECODE, L2_BYTES, LARGE, LONGEST, works

# Row -> goals (peer -> ratio) that have to be shown on an H200.
ROWS = {
    "w8a8, large": {"torch._int_mm + scales": 1.0},
    "fp8, large": {"torch._scaled_mm": 1.0},
    "w4a16 g128, M <= 16": {"torch f16": 0.3, "gemlite": 0.9, "torch._weight_int4pack_mm": 0.9},
    "w4a8 g128, M <= 16": {"torch f16": 0.3, "gemlite": 0.9, "torch._weight_int4pack_mm": 0.9},
    "w8a8, M <= 64": {"torch f16": 0.55},
    "ResNet-50 convolutions, batch 32": {"torch f16 channels-last": 0.6},
    "MoE, 64 experts, top 6": {"loop of torch f16": 0.5},
}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run([folder / "run", *arguments], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose programs run here: for the CPU, small, with some of the checks."""
    folder = tmp_path_factory.mktemp("gpu") / "trial"
    names = ("w8a8: ragged", "w8a8: requantised trunc", "w4a8: group 64", "conv2d: 3x3/1", "experts: routed",
             "w8a8 32x", "w4a8 g32", "conv 8x8", "MoE product 5")  # fmt: skip
    build(folder, "cpu", ("cpu",), tiny=True, only=names, wheel=False, say=lambda text: None)
    return folder


def test_every_work_that_has_to_be_shown_is_there() -> None:
    every = works()
    assert {w.row: {g.peer: g.ratio for g in w.goals} for w in every} == ROWS
    assert len({w.name for w in every}) == len(every)
    assert sum(w.row == "w8a8, large" for w in every) == len(LARGE) == 4
    assert sum(w.row.startswith("w4a") for w in every) == 2 * 3 * len(DECODE)
    assert sum(w.op == "conv2d_q" for w in every) == 20
    for w in every:
        assert set(dict.fromkeys(g.peer for g in w.goals)) <= set(w.peers), w.name
        assert w.repeats % w.copies == 0, w.name
        assert w.rotating_bytes * w.copies >= 2 * L2_BYTES or w.copies == LONGEST, w.name
    assert {w.row for w in works(tiny=True)} <= set(ROWS)
    families = {"w8a8", "w4a8", "weight only", "fp8", "K shared by workgroups", "conv2d", "experts"}
    assert {c.family for c in checks()} == families


@pytest.mark.slow
def test_the_runner_checks_and_measures(trial: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = run(trial, "--seconds", "0.01", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    assert {c["result"] for c in found["checks"]} == {"right"}
    assert len(found["checks"]) >= 15
    assert len(found["works"]) == 4
    for row in found["works"]:
        assert row["us"]["ours"] > 0
        # No peer without a GPU: each says so, and no ratio is made up.
        assert row["ratios"] == {}
        assert set(row["missing"]) == {p for w in works(tiny=True) if w.name == row["name"] for p in w.peers}
        assert all(row["missing"].values())
    assert "absent: torch f16" in done.stdout


@pytest.mark.slow
def test_a_wrong_result_is_reported(trial: Path, tmp_path: Path) -> None:
    import shutil

    import numpy as np

    folder = tmp_path / "wrong"
    shutil.copytree(trial, folder)
    contents = json.loads((folder / "works.json").read_text())
    with np.load(folder / "arrays.npz") as stored:
        arrays = dict(stored)
    case = contents["checks"][0]
    arrays[case["expected"][0]].flat[3] += 1
    np.savez(folder / "arrays.npz", **arrays)
    done = run(folder, "--checks")
    assert done.returncode == 1
    assert f"wrong      cpu            {case['name']}: result 0: 1 of " in done.stdout
    (folder / contents["checks"][1]["program"]["file"]).write_bytes(b"no program")
    assert run(folder, "--dry").returncode == 1


@pytest.mark.slow
def test_a_missing_device_is_said(trial: Path) -> None:
    done = run(trial, "--device", "cuda")
    assert done.returncode == 1
    assert "no device for" in done.stdout
    done = run(trial, "--device", "cuda", "--measure")
    assert done.returncode == 1
    assert "refused: no device" in done.stdout


def test_the_runner_opens_a_cuda_device(tmp_path: Path) -> None:
    """With the copied files of qmlir only, up to the driver's library, which a machine without a GPU does not have."""
    write_runner(tmp_path)
    script = """
import sys
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
import device
driver = SimpleNamespace(create_default_device=lambda: SimpleNamespace())
device.binding = lambda: SimpleNamespace(
    get_cached_hal_driver=lambda name: driver, VmInstance=lambda: None, create_hal_module=lambda *of: None,
    BufferUsage=SimpleNamespace(DEFAULT=0, MAPPING=0),
)
print(device.Device("cuda").driver)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "runner"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("cuda\n", 0), done.stderr


@pytest.mark.slow
def test_a_work_that_the_compiler_refuses_is_said(trial: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "refused"
    shutil.copytree(trial, folder)
    contents = json.loads((folder / "works.json").read_text())
    del contents["works"][0]["program"]
    contents["works"] = [{**contents["works"][0], "refused": "no such kernel"}]
    (folder / "works.json").write_text(json.dumps(contents))
    done = run(folder, "--measure")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused: no such kernel" in done.stdout


@pytest.mark.slow
def test_a_build_that_was_stopped_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    names, said = ("w8a8: ragged", "w8a8 32x48x64"), []

    def stop(text: str) -> None:
        said.append(text)
        if "w8a8: ragged" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(folder, TARGET, [TARGET], tiny=True, only=names, wheel=False, say=stop)
    with pytest.raises(FileExistsError, match="was begun as"):
        build(folder, TARGET, [TARGET], tiny=True, wheel=False)
    kept = (folder / "programs" / "000.vmfb.xz").stat().st_mtime_ns
    contents = build(folder, TARGET, [TARGET], tiny=True, only=names, wheel=False, say=said.append)
    assert (folder / "programs" / "000.vmfb.xz").stat().st_mtime_ns == kept
    assert len(contents["works"]) == 1
    assert not (folder / "journal.jsonl").exists()
    done = run(folder, "--dry")
    assert "0 wrong" in done.stdout
    with pytest.raises(FileExistsError, match="is not empty"):
        build(folder, TARGET, [TARGET], tiny=True, only=names, wheel=False)


@pytest.mark.slow
def test_the_folder_for_a_gpu_is_read_without_one(tmp_path: Path) -> None:
    """Compiled for the real targets: every program is a module that loads up to its device, and its arrays exist."""
    folder = tmp_path / "folder"
    names = ("w8a8: ragged", "w4a8: group 64", "conv 7x7x512 1x1")
    contents = build(folder, only=names, wheel=False, say=lambda text: None)
    assert {c["target"] for c in contents["checks"]} == set(CHECK_TARGETS)
    assert len(contents["works"]) == 1
    done = run(folder, "--dry")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout


@pytest.mark.slow
def test_large_weights_are_drawn_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    contents = build(folder, only=("w4a8 g128 1x4096x14336",), wheel=False, say=lambda text: None)
    (work,) = contents["works"]
    (drawn,) = work["program"]["draw"]
    assert drawn[1] >= work["copies"] * 4096 * 14336 // 2
    assert sum(f.stat().st_size for f in folder.rglob("*")) < 3_000_000
    assert run(folder, "--dry").returncode == 0


def test_constants_are_found_where_they_are() -> None:
    import numpy as np

    import qmlir

    w = np.random.default_rng(0).integers(-128, 128, (512, 512), dtype=np.int8)
    artifact = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec((1, 512), "i8"), w, rhs_transposed=True, target="cuda:sm_80"
    )
    ((start, length),) = constants(artifact.vmfb)
    assert length >= w.size
    assert artifact.vmfb[start : start + 512] in w.tobytes()
