"""Every op has its programs, and every rule of the verifiers has a program that breaks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DIALECT = HERE.parents[1] / "dialect"

# Rules that no program can break: they guard the builder, or the parser refuses such programs first.
BUILDER = ("' is missing", " has no operand or attribute ", " which is unsupported")

OPS = sorted(
    name
    for path in (DIALECT / "ops").glob("*.py")
    for name in re.findall(r'^class \w+\(\w+, name="(\w+)"', path.read_text(), re.M)
)


def _strings(node: ast.expr) -> Iterator[str]:
    """The literal pieces of a message."""
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def rules() -> Iterator[tuple[str, str]]:
    """Place and longest literal piece of each `fail(...)`, `OpError(...)` and `ShapeError(...)`."""
    definitions = (DIALECT / "ods").glob("*.py"), (DIALECT / "ops").glob("*.py")
    for path in [DIALECT / "shapes.py", *sorted(p for found in definitions for p in found)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            if node.func.id in ("fail", "OpError", "ShapeError"):
                pieces = sorted(_strings(node.args[0]), key=len)
                if pieces and len(pieces[-1]) > 6 and not any(b in p for b in BUILDER for p in pieces):
                    yield f"{path.name}:{node.lineno}", pieces[-1]


def expected() -> str:
    found = []
    for path in sorted(HERE.rglob("*.mlir")):
        found += re.findall(r"expected-error\S*\s*\{\{(.*?)\}\}$", path.read_text(), re.M)
    return "\n".join(found)


@pytest.mark.parametrize("name", OPS)
def test_op_has_programs(name: str) -> None:
    for file in ("ops.mlir", "ops_invalid.mlir"):
        assert f'"qmlir.{name}"' in (HERE / name / file).read_text()


def test_every_rule_is_broken_by_a_program() -> None:
    assert len(OPS) >= 7
    texts = expected()
    found = list(rules())
    assert len(found) > 80  # the search itself works
    missing = [f"{place}: {piece!r}" for place, piece in found if piece.strip(" ;,:'") not in texts]
    assert not missing, "no program breaks these rules:\n" + "\n".join(missing)
