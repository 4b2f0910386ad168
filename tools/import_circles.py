"""Finds import circles in qmlir, including imports inside functions, for type checking and by `importlib`. A circle is
an error, and so is a module that imports by `importlib` and is not listed here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from qmlir.passes.workarounds import HOOKS  # noqa: E402

# Modules -> the modules that they import by name (`importlib.import_module`), as patterns. `*` also matches dots.
BY_NAME: dict[str, tuple[str, ...]] = {
    "checking.runners": ("checking.reference", "checking.onnxruntime"),
    "checkpoint.opening": ("checkpoint.safetensors_file", "checkpoint.gguf_file"),
    "checkpoint.registry": (
        "checkpoint.awq", "checkpoint.bitsandbytes", "checkpoint.compressed_tensors", "checkpoint.gptq",
    ),
    "cli": ("cli.*",),
    "compat": ("compat.*",),
    "compiler.registry": (),  # front ends, which use the compiler and are registered with it as plugins
    "emulation.backends": ("emulation.amd", "emulation.cuda"),
    "passes.registry": ("passes.core.*", "passes.workarounds.iree_3_13.*"),
    "passes.workarounds": ("passes.workarounds.iree_3_13.*", *HOOKS),
    "targets.backends": ("targets.*.description", "targets.*.strategies"),
}  # fmt: skip

# Modules that import other packages by name, and the package itself, whose public names are its modules.
OF_OTHERS = ("", "checkpoint.gguf_file", "core.bindings", "frontends.torch.files")


def imports_by_name(source: str) -> bool:
    """Whether a module calls `importlib.import_module`."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) == ("importlib", "import_module")
        for node in ast.walk(ast.parse(source))
    )


def unlisted() -> Iterator[str]:
    """The modules that import by name and are listed in neither table."""
    # In a checkout qmlir/dialect and qmlir/passes are symbolic links, which `rglob` does not follow before Python 3.13.
    for folder, package in ((ROOT / "qmlir", ""), (ROOT / "dialect", "dialect."), (ROOT / "passes", "passes.")):
        for path in sorted(folder.rglob("*.py")):
            name = package + ".".join(path.relative_to(folder).with_suffix("").parts)
            name = name.removesuffix("__init__").rstrip(".")
            if name not in BY_NAME and name not in OF_OTHERS and imports_by_name(path.read_text()):
                yield name


def add_imports_by_name(graph: grimp.ImportGraph) -> list[str]:
    """Add the edges of `BY_NAME` to the graph. Returns the patterns that match no module."""
    unused = []
    for importer, patterns in BY_NAME.items():
        for pattern in patterns:
            found = [m for m in graph.modules if fnmatchcase(m, f"qmlir.{pattern}")]
            for module in found:
                if module != f"qmlir.{importer}":
                    graph.add_import(importer=f"qmlir.{importer}", imported=module)
            if not found:
                unused.append(f"{importer}: {pattern}")
    return unused


def circles(graph: grimp.ImportGraph) -> list[frozenset[str]]:
    """The strongly connected components with more than one module."""
    found = []
    left = {m for m in graph.modules if graph.find_modules_directly_imported_by(m)}
    while left:
        module = left.pop()
        below = graph.find_downstream_modules(module) & graph.find_upstream_modules(module)
        if below:
            found.append(frozenset(m.removeprefix("qmlir.") for m in {module, *below}))
            left -= below
    return found


def main() -> int:
    graph = grimp.build_graph("qmlir", cache_dir=None)
    unused, missing = add_imports_by_name(graph), list(unlisted())
    for pattern in unused:
        print(f"no module is {pattern}, which tools/import_circles.py says is imported by name")
    for module in missing:
        print(f"{module} calls importlib.import_module: say in tools/import_circles.py of what")
    found = circles(graph)
    for circle in found:
        print("modules that import each other: " + ", ".join(sorted(circle)))
    return int(bool(found or unused or missing))


if __name__ == "__main__":
    raise SystemExit(main())
