"""Every lit file as one pytest item, so that one summary covers lit and pytest, and xdist spreads both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TEST = Path(__file__).resolve().parent
# The same suffixes and excluded folders as in lit.cfg.py.
_FILES = sorted(
    path.relative_to(_TEST).as_posix()
    for suffix in ("*.mlir", "*.test")
    for path in _TEST.rglob(suffix)
    if not {"Inputs", "Output"} & set(path.parts)
)


# Files that start so many processes that they are in the slow tier; pytest tests the same functions.
_SLOW = {
    "cli/bench.test",
    "cli/check.test",
    "cli/compile_and_run.test",
    "cli/compile_sparse.test",
    "cli/explain.test",
    "cli/inspect.test",
    "cli/layout.test",
    "cli/sign.test",
    "cli/stages.test",
    "cli/tune.test",
    "dialect/irdl.test",
    "passes/bake_parameters.test",
    "passes/pipeline.test",
}


def test_slow_files_are_there() -> None:
    assert set(_FILES) >= _SLOW


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of tools that start without delay: they send their work to a server."""
    folder = tmp_path_factory.mktemp("tools")
    name = str(tmp_path_factory.mktemp("socket") / "s")
    script = str(_TEST / "support" / "lit_server.py")
    env = os.environ | {"PYTHONUTF8": "1", "PYTHONPATH": str(_TEST.parent)}
    with subprocess.Popen(
        [sys.executable, script, name, str(folder)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        yield folder
        server.stdin.close()


@pytest.mark.parametrize("name", [pytest.param(f, marks=pytest.mark.slow) if f in _SLOW else f for f in _FILES])
def test_lit(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    words = ["-v", "-j1", "--no-progress-bar", "--skip-test-time-recording", "--param", f"exec_root={tmp_path}"]
    if name in _SLOW:
        command = [sys.executable, "-c", "from lit.main import main; main()"]
    else:
        tools = request.getfixturevalue("tools")
        command = [str(tools / "lit"), "--param", f"tools={tools}"]
    command += [*words, str(_TEST / name)]
    done = subprocess.run(command, cwd=_TEST.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"lit {name}\n{done.stdout}{done.stderr}", pytrace=False)
    if "UNSUPPORTED" in done.stdout:
        pytest.skip(f"lit: unsupported here: {name}")
