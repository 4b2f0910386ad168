"""A front end in a separate package is installed, found, used, and named in its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qmlir
from conformance.opened import opened
from qmlir.compiler import patterns, registry
from qmlir.errors import FrontEndError, UsageError

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, installed by pip into a separate folder, without the network."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    for file in PLUGIN.rglob("*"):  # a copy, because pip builds in the source's folder
        if file.is_file() and "__pycache__" not in file.parts:
            target = source / file.relative_to(PLUGIN)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", str(folder / "site"), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def plugin(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    patterns._entries.cache_clear()
    yield
    patterns._entries.cache_clear()
    patterns._PATTERNS.pop("onnx.com.acme.Twice", None)


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
def test_plugin_imports_its_files(tmp_path: Path) -> None:
    assert [f.name for f in registry.front_ends()] == ["onnx", "torch", "tiny"]
    source = tmp_path / "product.tiny"
    source.write_text("4 8 3")
    artifact = qmlir.compile(source)
    assert artifact.import_report == {
        "raised": [{"op": "tiny.product", "where": str(source), "became": "qmlir.scaled_matmul"}],
        "fused": [],
        "left": [],
    }
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (4, 8), dtype=np.int8), rng.integers(-128, 128, (8, 3), dtype=np.int8)
    assert np.array_equal(opened(artifact).main(x, w), x.astype(np.int32) @ w.astype(np.int32))
    assert '"qmlir.scaled_matmul"' in artifact.source("import")

    # The cache's key is the content, so the same path with other content is another program.
    source.write_text("4 8 5")
    assert qmlir.compile(source).functions["main"].outputs[0].shape == (4, 5)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2", "expected three sizes, got 2 words"),
        ("wrong", "gave a str for "),
        ("defect", "KeyError: 'sizes'"),
    ],
)
def test_errors_of_a_plugin_name_it(tmp_path: Path, content: str, message: str) -> None:
    source = tmp_path / "bad.tiny"
    source.write_text(content)
    with pytest.raises(FrontEndError) as e:
        qmlir.compile(source)
    assert "front end 'tiny' (of tiny-front-end 1.2)" in str(e.value)
    assert message in str(e.value)


@pytest.mark.slow
@pytest.mark.usefixtures("plugin")
def test_command_line_uses_plugins(tmp_path: Path, installed: Path) -> None:
    import os

    source = tmp_path / "product.tiny"
    source.write_text("4 8 3")
    path = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run([sys.executable, "-m", "qmlir", "compile", str(source)], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path}, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "main(arg0: i8[4, 8], arg1: i8[8, 3]) -> (i32[4, 3])" in done.stdout


def test_plugin_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "broken-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[qmlir.frontends]\nbroken = no_such_module:FrontEnd\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FrontEndError, match=r"front end 'broken' \(of broken 0.1\) could not be loaded"):
        qmlir.compile(tmp_path / "model.tiny")


def test_source_that_nobody_accepts() -> None:
    with pytest.raises(UsageError, match=r"cannot compile a builtins.dict; .* a front end accepts \(onnx, torch\)"):
        qmlir.compile({})


def test_options_for_mlir_are_refused() -> None:
    with pytest.raises(UsageError, match="the source is MLIR, which takes no import options"):
        qmlir.compile("module {\n}", import_options={"x": 1})


def test_levels_are_for_mlir(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="start at level 'import', not at 'linalg'"):
        qmlir.compile(tmp_path / "model.onnx", start="linalg")
