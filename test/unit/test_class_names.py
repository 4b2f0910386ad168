"""A name means one thing: no two modules of the package define a public class or type alias with the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("qmlir", "dialect", "passes")


def defined(module: ast.Module) -> Iterator[str]:
    """Classes and aliases (`Name = ...`, not `NAME = ...`) of a module; private names are not imported elsewhere."""
    for node in module.body:
        names = [node.name] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        # A name of one letter is a type variable.
        yield from (n for n in names if len(n) > 1 and n[0].isupper() and not n.isupper())


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            # `qmlir/dialect` and `qmlir/passes` are links to the other two folders.
            if path.is_relative_to(ROOT / "qmlir/dialect") or path.is_relative_to(ROOT / "qmlir/passes"):
                continue
            for name in defined(ast.parse(path.read_text())):
                found[name].append(str(path.relative_to(ROOT)))
    assert len(found) > 300
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
