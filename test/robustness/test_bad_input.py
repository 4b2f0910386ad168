"""A table of bad input of every surface: each row is refused by one error with the given message, in little memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from robustness import checkpoints, command_line, onnx_models, operations, parameters
from robustness.case import Case

from qmlir.tools.timing import peak_memory

TABLES = (command_line, checkpoints, onnx_models, operations, parameters)
FEEDS = {name: feed for table in TABLES for name, feed in table.FEEDS.items()}
CASES = [case for table in TABLES for case in table.CASES]
MEMORY = 500 << 20  # the most that a case may allocate


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands run."""
    return tmp_path_factory.mktemp("bad")


@pytest.fixture(scope="module")
def results(commands: Path) -> dict[str, command_line.Result]:
    return command_line.run_all(commands)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.surface}: {case.name}" for case in CASES])
def test_it_is_refused(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = request.getfixturevalue("results")[case.name] if case.surface == "command" else case.given
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory of the process
    before = peak_memory()
    with pytest.raises(case.error, match=case.message) as e:
        FEEDS[case.surface](given, tmp_path)
    assert peak_memory() - before < MEMORY
    text = str(e.value)
    assert "Traceback" not in text
    assert len(text) < 2500, "no IR is dumped into a message"


def test_commands_leave_nothing(commands: Path, results: dict[str, command_line.Result]) -> None:
    assert set(results) == {case.name for case in command_line.CASES}
    assert list((commands / "out").iterdir()) == []
    assert [p.name for p in commands.rglob("*.tmp")] == []
    assert [p.name for p in commands.rglob("*.lock")] == []


def test_names_are_unique() -> None:
    assert len({(case.surface, case.name) for case in CASES}) == len(CASES)
