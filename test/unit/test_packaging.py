"""The package as others install it: dialect/ and passes/ are mapped into it by an explicit list."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from packaging.specifiers import SpecifierSet

import qmlir

ROOT = Path(__file__).resolve().parents[2]
# Top-level folder -> the name that its Python files are imported under.
MAPPED = {"qmlir": "qmlir", "dialect": "qmlir.dialect", "passes": "qmlir.passes"}
# Files of the package that are not Python files.
DATA = {"qmlir/py.typed", "qmlir/compiler/tuning_defaults.json"} | {
    f"qmlir/emulation/shim/{name}" for name in ("cuda.c", "device.h", "hip.c")
}


def listed_packages() -> list[str]:
    # Python 3.10 has no tomllib; the list is written one name a line.
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r"^packages = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert match, "pyproject.toml has no [tool.setuptools] packages list"
    return re.findall(r'"([^"]+)"', match[1])


def package_files() -> set[str]:
    """Every Python file of the package, by its path in a wheel."""
    return {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in MAPPED.items()
        for path in (ROOT / folder).rglob("*.py")
    }


def test_package_list_equals_the_folders() -> None:
    listed = listed_packages()
    assert len(listed) == len(set(listed)), "a package is listed twice"
    assert set(listed) == {file.rpartition("/")[0].replace("/", ".") for file in package_files()}


def test_what_is_installed_lies_in_the_ranges() -> None:
    """tools/constraints.txt pins versions within the ranges of pyproject.toml."""
    lines = [
        line for line in (ROOT / "tools" / "constraints.txt").read_text().splitlines() if line[:1] not in ("#", "")
    ]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, pinned in (line.split("==") for line in lines):
        [stated] = re.findall(rf'"{re.escape(name)}([<>=][^;"]*)[;"]', text)
        assert "==" not in stated
        assert pinned in SpecifierSet(stated), f"{name} {pinned} is not in {stated}"


def test_every_package_has_an_init() -> None:
    # A folder without one is a namespace package: it imports here, which hides that a file is missing elsewhere.
    assert {f"{name.replace('.', '/')}/__init__.py" for name in listed_packages()} <= package_files()


def run(*command: str | Path, cwd: Path) -> str:
    # Nothing of this checkout may be visible to the installed package.
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("packaging") / "checkout"
    skip = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "test")
    shutil.copytree(ROOT, copy, ignore=skip, symlinks=True)
    return copy


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a clean environment."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", cwd=folder)
    return python


@pytest.fixture(scope="module")
def distributions(checkout: Path, python: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it."""
    out = checkout.parent / "dist"
    run(python, "-m", "build", "--outdir", out, checkout, cwd=checkout.parent)
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.xdist_group("packaging")
def test_sdist_holds_the_sources(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for folder in MAPPED for path in (ROOT / folder).rglob("*.py")}
    assert sources | DATA | {"pyproject.toml", "LICENSE", "README.md"} <= inside


@pytest.mark.slow
@pytest.mark.xdist_group("packaging")
def test_wheel_holds_the_package_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == package_files() | DATA


@pytest.mark.slow
@pytest.mark.xdist_group("packaging")
@pytest.mark.parametrize("form", ["wheel", "editable", "editable strict"])
def test_installs_and_imports(
    form: str, distributions: tuple[Path, Path], checkout: Path, python: Path, tmp_path: Path
) -> None:
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"]
    # Install the dependencies once, with the resolver; each form then replaces only the package.
    run(python, "-m", "pip", "install", "--quiet", distributions[1], cwd=tmp_path)
    if form == "wheel":
        run(*install, distributions[1], cwd=tmp_path)
    else:
        strict = ["--config-settings", "editable_mode=strict"] if form.endswith("strict") else []
        run(*install, *strict, "--editable", checkout, cwd=tmp_path)

    # The patterns of a front end use the framework's classes, which its extra installs.
    of_extras = ("qmlir.frontends.onnx.", "qmlir.frontends.torch.")
    names = [*(n for n in listed_packages() if not n.startswith(of_extras)), "qmlir.errors"]
    public = "import qmlir; [getattr(qmlir, name) for name in qmlir.__all__]"
    imports = f"import importlib; [importlib.import_module(name) for name in {names!r}]; {public}"
    run(python, "-c", imports, cwd=tmp_path)
    where = run(python, "-c", "import qmlir.dialect; print(qmlir.dialect.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1] if form == "wheel" else checkout)
    for tool in ("qmlir", "qmlir-opt"):
        assert "usage" in run(python.parent / tool, "--help", cwd=tmp_path).lower()


@pytest.mark.slow
@pytest.mark.xdist_group("packaging")
def test_runs_without_the_compiler(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    """As docs/deployment.md says."""
    layer = qmlir.ops.scaled_matmul.compile(
        qmlir.TensorSpec((None, 8), "i8"), np.eye(8, dtype=np.int8), out_dtype="i32"
    )
    layer.save(tmp_path / "layer.vmfb")
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    runtime = f"iree-base-runtime=={version('iree-base-runtime')}"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", distributions[1], runtime, cwd=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", "numpy", "ml_dtypes", cwd=tmp_path)
    np.save(tmp_path / "x.npy", np.ones((3, 8), np.int8))
    call = "import numpy as np, qmlir; print(qmlir.load('layer.vmfb').main(np.ones((3, 8), np.int8)).sum())"
    assert run(python, "-c", call, cwd=tmp_path) == "24\n"
    compiling = "import qmlir; qmlir.compile('func.func @main() { return }')"
    done = subprocess.run([python, "-c", compiling], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "iree-base-compiler" in done.stderr
    [more] = re.findall(r"^pip install numpy ml_dtypes (.*)$", (ROOT / "docs/deployment.md").read_text(), re.MULTILINE)
    run(python, "-m", "pip", "install", "--quiet", *more.split(), cwd=tmp_path)
    command = python.parent / "qmlir"
    assert "IREE compiler not installed" in run(command, "--version", cwd=tmp_path)
    for words in (
        "targets", "devices", "cache path", "cache ls", "run layer.vmfb -i x.npy", "inspect layer.vmfb",
        "explain layer.vmfb", "bench layer.vmfb --rounds 3 --limits 1e12,1e10",
        "check layer.vmfb --against layer.vmfb",
    ):  # fmt: skip
        assert run(command, *words.split(), cwd=tmp_path)
    (tmp_path / "empty.mlir").write_text("func.func @main() { return }")
    for words in ("compile empty.mlir", "explain empty.mlir", "tune empty.mlir"):
        done = subprocess.run([command, *words.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "iree-base-compiler is not installed" in done.stderr
