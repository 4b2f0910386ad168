"""Import circles in qmlir, imports inside functions and of types included. A circle is an error."""

from __future__ import annotations

import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]


def circles(graph: grimp.ImportGraph) -> list[frozenset[str]]:
    """The strongly connected components of more than one module."""
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
    sys.path.insert(0, str(ROOT))
    found = circles(grimp.build_graph("qmlir", cache_dir=None))
    for circle in found:
        print("modules that import each other: " + ", ".join(sorted(circle)))
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
