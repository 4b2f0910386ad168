"""Imports of the project's own modules inside functions, which `make lint` allows only where `ALLOWED` names a reason.

An import in a function often hides a circle; those that are allowed keep a start quick or need a package that is
optional. Other packages than the project's are not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What loads in a moment: the command line imports it plainly, and everything else when a command runs.
LIGHT = ("qmlir.cli", "qmlir.core", "qmlir.errors", "qmlir.settings", "qmlir.signing")
# Beside commands, the modules that may import what is named where it is used.
ALLOWED = {
    "qmlir": ("qmlir.compiler.",),  # loads on first use; a program runs without the compiler
    "qmlir.frontends.onnx": ("qmlir.frontends.onnx.",),  # needs the onnx package
    "qmlir.frontends.torch": ("qmlir.frontends.torch.",),  # needs torch
    "qmlir.runtime.program": ("qmlir.emulation.",),  # for programs that are emulated
    "qmlir.targets": ("qmlir.targets.",),  # the device of a bare target is asked for when it is resolved
    "qmlir.targets.cpu.strategies": ("qmlir.targets.cpu.kernels.",),  # of operations that few programs have
}


def imports(tree: ast.AST, package: str, inside: bool = False) -> Iterator[tuple[int, str]]:
    """The line and the module of each import of the project in a function."""
    for node in ast.iter_child_nodes(tree):
        if inside and isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.partition(".")[0] == "qmlir")
        elif inside and isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.partition(".")[0] == "qmlir":
                # `from . import x` is of the module x.
                yield from ((node.lineno, module if node.module else f"{module}.{a.name}") for a in node.names)
        yield from imports(node, package, inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def allowed(importer: str, imported: str) -> bool:
    """Whether a module may import another inside a function."""
    if importer == "qmlir.cli":
        return True  # `main` itself, whose every import is in the way of a message about a wrong word
    if importer.startswith("qmlir.cli."):
        return not any(imported == m or imported.startswith(f"{m}.") for m in LIGHT)
    return any(imported.startswith(prefix) for prefix in ALLOWED.get(importer, ()))


def main() -> int:
    found = []
    for top in ("qmlir", "dialect", "passes"):
        for path in sorted((ROOT / top).rglob("*.py")):
            file = path.relative_to(ROOT)
            parts = [*(() if top == "qmlir" else ("qmlir",)), *file.with_suffix("").parts]
            importer = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            package = ".".join(parts[:-1])
            for line, imported in dict.fromkeys(imports(ast.parse(path.read_text(encoding="utf-8")), package)):
                if not allowed(importer, imported):
                    found.append(f"{file}:{line}: {imported} is imported inside a function; import it at the top")
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
