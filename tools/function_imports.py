"""Finds imports of the project's own modules inside functions, which `make lint` allows only if `ALLOWED` lists them.

An import inside a function often hides an import circle. The allowed ones keep the start fast or need an optional
package. Imports of other packages are not checked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Modules that load fast: commands import them at the top, and all others inside functions.
LIGHT = ("qmlir.cli", "qmlir.core", "qmlir.errors", "qmlir.settings", "qmlir.signing")
# Modules other than commands -> the modules that they may import inside functions, as prefixes.
ALLOWED = {
    "qmlir": ("qmlir.compiler.",),  # loaded on first use; programs run without the compiler
    "qmlir.frontends.onnx": ("qmlir.frontends.onnx.",),  # needs the onnx package
    "qmlir.frontends.torch": ("qmlir.frontends.torch.",),  # needs torch
    "qmlir.runtime.program": ("qmlir.emulation.",),  # for programs that are emulated
    "qmlir.targets": ("qmlir.targets.",),  # a target without a device queries it when it is resolved
    "qmlir.targets.cpu.strategies": ("qmlir.targets.cpu.kernels.",),  # kernels of operations that few programs have
}


def imports(tree: ast.AST, package: str, inside: bool = False) -> Iterator[tuple[int, str]]:
    """Line and module of each import of a project module inside a function."""
    for node in ast.iter_child_nodes(tree):
        if inside and isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.partition(".")[0] == "qmlir")
        elif inside and isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.partition(".")[0] == "qmlir":
                # `from . import x` imports the module x.
                yield from ((node.lineno, module if node.module else f"{module}.{a.name}") for a in node.names)
        yield from imports(node, package, inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def allowed(importer: str, imported: str) -> bool:
    """Whether a module may import another inside a function."""
    if importer == "qmlir.cli":
        return True  # `main`: imports at the top would delay even the message about a mistyped command
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
