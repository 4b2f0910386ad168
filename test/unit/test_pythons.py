"""The other versions of Python: each in an environment of its own, installed from the package's metadata."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = [(3, minor) for minor in range(10, 14) if (3, minor) != sys.version_info[:2]]
# Tests that depend on the Python and package versions: front ends, the runtime, annotations read at run time.
TESTS = [
    "test/unit/test_import.py", "test/unit/test_artifact.py", "test/unit/test_arguments.py", "test/unit/test_dtypes.py",
    "test/unit/test_contexts.py", "test/runtime", "test/passes", "test/numerics/test_edges.py",
    "test/checkpoint/test_import.py", "test/frontends/test_onnx_nodes.py", "test/frontends/torch/test_models.py",
    "test/emulation/test_programs.py",
]  # fmt: skip


def interpreter_of(version: str) -> str | None:
    """`python3.N` of the PATH, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = [found] if (found := shutil.which(f"python{version}")) else []
    for python in [*on_path, *map(str, pyenv.glob(f"versions/{version}.*/bin/python{version}"))]:
        # pyenv puts a command for each version on the PATH; all fail except that of the selected version.
        if subprocess.run([python, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
            return python
    return None


@pytest.mark.slow
@pytest.mark.sweep(slow=40)
@pytest.mark.parametrize("version", VERSIONS, ids=[f"{a}.{b}" for a, b in VERSIONS])
def test_another_python(version: tuple[int, int], tmp_path: Path) -> None:
    """One version per run of the slow tier: an environment takes 3 GB."""
    interpreter = interpreter_of("{}.{}".format(*version))
    if interpreter is None:
        pytest.skip("no Python {}.{} that makes virtual environments is installed".format(*version))
    checkout = tmp_path / "qmlir"
    skip = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, checkout, ignore=skip, symlinks=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("QMLIR_REQUIRE_EMULATION", "PYTHONPATH")}
    environment["QMLIR_CACHE_DIR"] = str(tmp_path / "cache")

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    run(interpreter, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c",
        "tools/constraints.txt", "-e", ".[test]")  # fmt: skip
    output = run(python, "-m", "pytest", "-q", "-m", "not slow", *TESTS)
    assert " passed" in output.splitlines()[-1]
    shutil.rmtree(tmp_path / "venv")
