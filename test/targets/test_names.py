"""No code branches on the name of a target, backend or driver: the properties of a device are fields of `Capabilities`,
the behaviour of a backend or driver is in its `Backend` or `RuntimeDriver`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Comparisons with names of backends, drivers, targets and architectures of AMD or NVIDIA.
_WORDS = r"cpu|cuda|hip|rocm|vulkan|host|present|local-(?:task|sync)|(?:gfx|sm_)\w*|(?:cpu|cuda|rocm|vulkan):\w*"
_NAMES = rf"""["'](?:{_WORDS})["']"""
ASKED = re.compile(
    rf"(?:==|!=)\s*{_NAMES}|{_NAMES}\s*(?:==|!=)|\bin\s*[(\[{{]\s*{_NAMES}|\.(?:starts|ends)with\(\(?{_NAMES}"
    rf"|\.remove(?:prefix|suffix)\({_NAMES}"
)
# Files that may read a name, and on how many lines: a target passed as another argument; a PyTorch device type.
READ = {"qmlir/compat/bitblas.py": 1, "qmlir/frontends/torch/backend.py": 1}


def _sources() -> list[Path]:
    folders = ("qmlir", "passes", "dialect")
    return sorted(
        p for f in folders for p in (ROOT / f).rglob("*.py") if p.relative_to(ROOT / f).parts[0] not in folders
    )


def test_no_branch_on_the_name_of_a_target() -> None:
    found: dict[str, list[str]] = {}
    for path in _sources():
        lines = [line.strip() for line in path.read_text().splitlines() if ASKED.search(line)]
        if lines:
            found[str(path.relative_to(ROOT))] = lines
    beyond = {file: lines for file, lines in found.items() if len(lines) > READ.get(file, 0)}
    assert not beyond, "ask a field of Capabilities, Target, Backend, RuntimeDriver or Generation"


@pytest.mark.parametrize(
    "line",
    [
        'if target.backend == "cpu":', 'if driver in ("cuda", "hip"):', "if 'vulkan' != kind:",
        'machine.startswith("gfx9")', 'name.removeprefix("sm_")', 'if target.spelling == "vulkan:present":',
        'machine.startswith(("gfx11", "gfx12"))', 'if target.name == "host":', 'if driver == "local-task":',
    ],
)  # fmt: skip
def test_what_counts_as_a_comparison(line: str) -> None:
    assert ASKED.search(line)


@pytest.mark.parametrize("line", ['target: str = "cpu"', 'Backend("cuda")', 'table["gfx942"]', 'x = {"cpu": 1}'])
def test_what_does_not(line: str) -> None:
    assert not ASKED.search(line)
