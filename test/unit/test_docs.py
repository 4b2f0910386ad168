"""The documentation is true: the generated page is current, the README's Python runs, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "samples").rglob("*.md"))
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
# [text](target), but no image of elsewhere and nothing inside code.
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_page_is_current() -> None:
    run([sys.executable, "docs/generate.py", "--check"], ROOT)


def test_readme_has_python() -> None:
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    run([sys.executable, "-c", BLOCKS[number]], tmp_path)


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (fragment and there.suffix == ".md" and fragment not in anchors(there)):
            broken.append(link)
    assert not broken
