"""Describes the contents of a compiled program, as facts and as text, without running it."""

from __future__ import annotations

import io
import textwrap
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..core.rows import DecisionRow, ParameterRow, SchemeRow
from ..report import html
from ..signing import digest
from ..targets.cpu.host import missing_features
from ..targets.strategy import facts_text, shape_text
from .manifest import Manifest, scheme_text


class Needs(TypedDict, total=False):
    """The requirements of a program on the machine that runs it."""

    driver: str
    cpu_features: list[str]
    missing_here: list[str]
    subgroup_sizes: list[int]
    shared_memory: int
    mma: list[str]


class _Known(TypedDict):
    name: str
    versions: dict[str, str]
    functions: dict[str, str]
    ops: dict[str, int]
    schemes: list[SchemeRow]
    parameters: list[ParameterRow]


class Contents(_Known, total=False):
    """The contents of a program by topic, JSON-serialisable; topics that do not apply are left out."""

    bytes: int
    sha256: str
    parts: dict[str, int]
    target: str
    needs: Needs
    strategies: list[DecisionRow]
    pipeline: str
    notes: list[str]
    source: str
    # Only for a program that is not compiled: the level that was inspected, and its tensor constants.
    level: str
    constants: int
    constant_bytes: int


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect`: `facts` by topic."""

    facts: Contents

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """One topic after the other; lines are wrapped to `width` columns when it is given."""
        lines: list[str] = []
        for topic, entries in _topics(self.facts):
            if len(entries) == 1:
                lines += _lines(f"{topic + ':':<13} {entries[0]}", " " * 14, width)
                continue
            lines.append(f"{topic}:")
            for entry in entries:
                lines += _lines(f"  {entry}", " " * 6, width)
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        return dict(self.facts)

    def _repr_html_(self) -> str:
        cells = [(topic, "\n".join(entries)) for topic, entries in _topics(self.facts)]
        rows = html.table(("", ""), cells).replace("\n", "<br>")
        return html.section(str(self.facts["name"]), rows)


def _lines(text: str, indent: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, max(width, 40), subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def inspection(vmfb: bytes, manifest: Manifest, path: Path | None) -> Inspection:
    """The contents of a compiled program."""
    with zipfile.ZipFile(io.BytesIO(vmfb)) as archive:
        parts = {entry.filename: entry.file_size for entry in archive.infolist()}
    facts: Contents = {
        "name": str(path or "compiled program"),
        "bytes": len(vmfb),
        "sha256": digest(vmfb),
        "parts": parts,
        "target": manifest.target,
        "needs": _needs(manifest),
        "versions": {"qmlir": manifest.qmlir, "iree": manifest.iree},
        "functions": {name: str(s) for name, s in manifest.functions.items()},
        "ops": manifest.ops,
        "schemes": manifest.schemes,
        "parameters": manifest.parameter_types,
        "strategies": manifest.strategies,
        "pipeline": manifest.pipeline,
        "notes": [str(n) for n in manifest.notes],
    }
    if manifest.source:
        facts["source"] = manifest.source["path"]
    return Inspection(facts)


def _needs(manifest: Manifest) -> Needs:
    """The requirements of the program on the machine that runs it."""
    facts = manifest.capabilities
    needs: Needs = {"driver": manifest.driver}
    if manifest.cpu_features:
        needs["cpu_features"] = list(manifest.cpu_features)
        needs["missing_here"] = missing_features(manifest.cpu_features)
    if sizes := facts.get("subgroup_sizes"):
        needs["subgroup_sizes"] = sizes
    if shared := facts.get("shared_memory"):
        needs["shared_memory"] = shared
    chosen = [a for row in manifest.strategies for a in row["answers"] if a["strategy"] == row["chosen"]]
    used = {str(mma) for a in chosen if a["accepted"] and (mma := a["plan"].get("mma")) is not None}
    if used:
        needs["mma"] = sorted(used)
    return needs


# ---------------------------------------------------------------------------------------------------- in words


def _topics(facts: Contents) -> list[tuple[str, list[str]]]:
    """Topics with their entries as text."""
    topics: list[tuple[str, list[str]]] = []

    def tell(topic: str, entries: Sequence[str]) -> None:
        if entries:
            topics.append((topic, list(entries)))

    size = f", {facts['bytes']:,} bytes" if "bytes" in facts else ""
    tell("file", [f"{facts['name']}{size}"])
    tell("contents", [f"{name}, {count:,} bytes" for name, count in facts.get("parts", {}).items()])
    tell("target", [facts["target"]] if "target" in facts else [])
    tell("needs", _needs_text(facts.get("needs", {})))
    tell("made by", [", ".join(f"{n} {v}" for n, v in facts["versions"].items())] if "target" in facts else [])
    tell("functions", [f"{name}{signature}" for name, signature in facts["functions"].items()])
    tell("ops", [", ".join(f"{name} ({count})" if count > 1 else name for name, count in facts["ops"].items())]
         if facts["ops"] else [])  # fmt: skip
    tell("schemes", [scheme_text(row) for row in facts["schemes"]])
    if facts.get("constants"):
        tell("constants", [f"{facts['constants']}, {facts['constant_bytes']:,} bytes"])
    tell("parameters", [_parameter_text(p) for p in facts["parameters"]])
    for row in facts.get("strategies", []):
        chosen = next((a for a in row["answers"] if a["strategy"] == row["chosen"]), None)
        if chosen is not None:
            place = f"{row['location']}: " if row["location"] else ""
            tell("strategies", [f"{place}{shape_text(row)}: {row['chosen']}: {facts_text(chosen['plan'])}"])
    tell("pipeline", [facts["pipeline"].replace(",", ", ")] if facts.get("pipeline") else [])
    tell("source", [facts["source"]] if "source" in facts else [])
    tell("notes", facts.get("notes", []))
    return _merged(topics)


def _merged(topics: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """The topics with the entries of equal ones joined."""
    merged: dict[str, list[str]] = {}
    for topic, entries in topics:
        merged.setdefault(topic, []).extend(entries)
    return list(merged.items())


def _parameter_text(p: ParameterRow) -> str:
    shape = "x".join(map(str, [*p["shape"], p["element"]]))
    return f"{p['scope']}::{p['key']}: {shape}" if p["scope"] else f"{p['key']}: {shape}"


def _needs_text(needs: Needs) -> list[str]:
    if not needs:
        return []
    parts = [f"driver {needs['driver']}"]
    if "subgroup_sizes" in needs:
        parts.append(f"subgroups of {' or '.join(map(str, needs['subgroup_sizes']))}")
        parts.append(f"{needs.get('shared_memory', 0) >> 10} KiB of shared memory")
    if "mma" in needs:
        parts.append(", ".join(needs["mma"]))
    lines = [", ".join(parts)]
    if "cpu_features" in needs:
        lines.append(f"CPU features {' '.join(needs['cpu_features'])}")
        if needs["missing_here"]:
            lines.append(f"which this machine lacks: {' '.join(needs['missing_here'])}")
    return lines
