"""`Any` is used only where no type can be stated; each place is listed here with the reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("qmlir", "dialect", "passes")
_AS_ARGUMENTS = "results are of numpy or of torch, as the arguments are"
# Files and folders that use `Any`: on how many lines, and why.
ALLOWED = {
    "dialect/dtypes.py": (2, "arrays and dtypes of any element type: numpy's own spelling"),
    "dialect/ods/op.py": (2, "values by the names of fields, whose kinds of attribute say which types they have"),
    "dialect/ods/view.py": (1, "a field or a rule of any op class by its name"),
    "dialect/reference": (2, "keywords that are handed on to `scaled_matmul`"),
    "passes/core/lower/__init__.py": (1, "a table of rules, each for the view of its own op class"),
    "qmlir/compiler/front_end.py": (1, "a source that `accepts` has taken"),
    "qmlir/emulation/amd/operands.py": (2, "an array, or a numpy scalar for all lanes: no common type has arithmetic"),
    "qmlir/frontends/onnx": (6, "attributes of ONNX by name, and what onnx's stubs lack"),
    "qmlir/frontends/raising.py": (3, "a pattern's own subclass, and one result of an operation or several"),
    "qmlir/ops": (2, _AS_ARGUMENTS),
    "qmlir/runtime": (3, _AS_ARGUMENTS),
}
_IN_TEXT = re.compile(r"[\[(,|:] ?Any\b|^Any\b[\],|)]")  # a type in quotes, but not the word in a docstring


def lines(path: Path) -> set[int]:
    """Lines that use the name `Any`, except imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            used = node.id == "Any"
        else:
            text = isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
            used = text and _IN_TEXT.search(node.value) is not None
        if used:
            found.add(node.lineno)
    return found


def test_any_is_only_where_it_is_listed() -> None:
    counts = dict.fromkeys(ALLOWED, 0)
    elsewhere = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            # `qmlir/dialect` and `qmlir/passes` are links to the other two folders.
            if path.is_relative_to(ROOT / "qmlir/dialect") or path.is_relative_to(ROOT / "qmlir/passes"):
                continue
            for line in sorted(lines(path)):
                place = next((p for p in ALLOWED if path.is_relative_to(ROOT / p)), None)
                if place is None:
                    elsewhere.append(f"{path.relative_to(ROOT)}:{line}")
                else:
                    counts[place] += 1
    assert elsewhere == []
    assert counts == {place: count for place, (count, _) in ALLOWED.items()}
