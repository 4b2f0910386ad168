"""The documentation is current: generated pages, links, pictures, and a page for everything public."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import qmlir
from qmlir.passes.registry import PASSES
from qmlir.targets import all_targets, resolve

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "samples").rglob("*.md"))
# `ops` has a page per operation, and `reference` the same functions; errors.md and compat.md are pages of their own.
NO_PAGE = {"ops", "reference", "compat", "EmulationError", "InputError", "QmlirError", "SlowFallbackWarning"}
# `[text](target)`; the test leaves out code blocks and targets with a scheme (`https:`).
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# Generating the outputs of commands takes most of the time of all pages, so only those of `--help` are checked here.
QUICK = """
import sys
sys.path.insert(0, "docs")
import commands, generate
page = (generate.DOCS / "commands.md").read_text()
with commands._place():
    for line in (line for *_, lines in commands.SECTIONS for line in lines if str(line).endswith(" --help")):
        assert f"$ {line}\\n{commands.output_of(line)}\\n```" in page, f"commands.md is out of date: {line}"
sys.exit(generate.main(["--check", *sorted({*generate.PAGES, *generate.FOLDERS} - {"commands.md"})]))
"""


def test_generated_page_is_current() -> None:
    run([sys.executable, "-c", QUICK], ROOT)


@pytest.mark.slow
def test_outputs_of_commands_are_current() -> None:
    run([sys.executable, "docs/generate.py", "--check", "commands.md"], ROOT)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """`make docs`: every page is in the navigation, every link and anchor leads somewhere."""
    run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")], ROOT)
    pages = {p.relative_to(ROOT / "docs").with_suffix("").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    built = {p.parent.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("index.html")}
    assert {p.removesuffix("/index") for p in pages - {"index"}} <= built


def test_there_is_a_page_of_everything() -> None:
    """A page of each pass, target, scheme, and public function, class and module."""
    docs = ROOT / "docs"
    pages = {p.stem for p in (docs / "api").glob("*.md")} - {"index"}
    operations = {f"ops-{n}" for n in qmlir.ops.__all__ if isinstance(getattr(qmlir.ops, n), qmlir.ops.Operation)}
    assert pages == operations | (set(qmlir.__all__) - NO_PAGE)
    assert {p.stem for p in (docs / "passes").glob("*.md")} - {"index"} == set(PASSES)
    assert {p.stem for p in (docs / "targets").glob("*.md")} - {"index"} == {
        t.spelling.replace(":", "-") for t in all_targets()
    }
    assert {p.stem for p in (docs / "schemes").glob("*.md")} - {"index"} == {
        p.stem for p in (docs / "schemes").glob("*.svg")
    }


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "notebook.md"], ids=lambda p: p.name)
def test_pages_have_plain_words(page: Path) -> None:
    """Pages do not use phrases of earlier pages that only their writers understood."""
    private = (
        r"\b(ours|our kernels|where (it|they) (lie|lies)|as (it|they) (lie|lies)|by turns|by twos|is said by|beside|"
        r"kin|compute \w+ apart|once a signature|stands? for|by itself|but for)\b"
    )
    assert not re.search(private, page.read_text(encoding="utf-8"))


def test_the_readme_has_the_level_of_proof_of_each_target() -> None:
    """The table gives every target the level that `Target.status` states."""
    found: dict[str, str] = {}
    for row in re.findall(
        r"^\| (`(?:cpu|cuda|rocm|vulkan)\b.*) \| \*\*([\w ]+)\*\*", PAGES[0].read_text(), re.MULTILINE
    ):
        for part in row[0].split("; "):
            backend, names = re.fullmatch(r"`(\w+):?` (.*)", part).groups()  # type: ignore[union-attr]
            for name in names.split(", "):
                spelling = backend if name == "(this host)" else f"{backend}:{name}"
                assert spelling not in found, f"{spelling} has two lines"
                found[spelling] = row[1]
    assert found == {t.spelling: t.status for t in (resolve("cpu"), *all_targets())}


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda p: p.name)
def test_text_of_pictures_fits(picture: Path) -> None:
    """Within the picture, and within its box if it has one; a character of size 11 or 12 takes at most seven units."""
    from xml.etree import ElementTree

    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(picture).getroot()
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    boxes = [{k: float(b.get(k, "0")) for k in ("x", "y", "width", "height")} for b in root.iter(f"{space}rect")
             if not b.get("width", "").endswith("%")]  # fmt: skip
    for text in root.iter(f"{space}text"):
        anchor = text.attrib.get("text-anchor") or root.attrib["text-anchor"]
        x, y, long = float(text.attrib["x"]), float(text.attrib["y"]), 5.9 * len(text.text or "")
        left = {"start": x, "middle": x - long / 2, "end": x - long}[anchor]
        if "transform" in text.attrib:
            continue
        assert left >= 0, text.text
        assert left + long <= width, text.text
        assert 0 <= y <= height, text.text
        inside = [b for b in boxes if b["x"] <= x <= b["x"] + b["width"] and b["y"] <= y <= b["y"] + b["height"]]
        if anchor == "middle" and inside:
            assert long <= inside[-1]["width"] + 4, text.text


@pytest.mark.parametrize(
    "file", sorted((ROOT / "benchmarks" / "results").glob("cpu-*.json")), ids=lambda file: file.stem
)
def test_the_picture_of_speed_shows_every_measurement(file: Path) -> None:
    """Each measurement is a dot, on its side of 1. Once only the 40 best rows were drawn, none slower than a peer."""
    from xml.etree import ElementTree

    cpu = json.loads(file.read_text())
    decoders = [json.loads(p.read_text()) for p in file.parent.glob("decoder-*.json")]
    decoder = next((d for d in decoders if d["environment"]["cpu"] == cpu["environment"]["cpu"]), {"rows": []})
    ratios = [r["ratio"] for work in cpu["works"] for r in work["rows"] if r["ratio"] is not None]
    ratios += [r["ratio"]["median"] for r in decoder["rows"] if r["ratio"]]
    sys.path.insert(0, str(ROOT / "docs"))
    from pages import speed

    picture = ElementTree.fromstring(speed.picture(cpu, decoder))
    space = "{http://www.w3.org/2000/svg}"
    places = [float(dot.attrib["cx"]) for dot in picture.iter(f"{space}circle")]
    one = next(float(t.attrib["x"]) for t in picture.iter(f"{space}text") if t.text == "1")
    assert len(places) == len(ratios)
    assert sum(x > one for x in places) == sum(r > 1.001 for r in ratios)
    texts = " ".join(t.text or "" for t in picture.iter(f"{space}text"))
    assert all(work["row"] in texts for work in cpu["works"] if work["rows"])
    assert f"{max(ratios):.2f}" in texts


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


# A path of the project in a page's text: `qmlir/ir/walk.py`, `test/numerics`, but not `dialect/ops/NAME.py`.
FILE = re.compile(
    r"`((?:\.ci|benchmarks|conformance|dialect|docs|passes|qmlir|samples|test|tools|typings)/[a-z_0-9./]*)`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(page: Path) -> None:
    assert not [path for path in FILE.findall(page.read_text()) if not (ROOT / path).exists()]


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
