"""Import circles in qmlir, imports inside functions included: `python tools/import_circles.py FOLDER`.

FOLDER holds the package as a wheel would (`make lint` puts `qmlir`, `dialect` and `passes` together there). A circle
is an error.
"""

from __future__ import annotations

import sys

import grimp


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


def main(folder: str) -> int:
    sys.path.insert(0, folder)
    found = circles(grimp.build_graph("qmlir", exclude_type_checking_imports=True, cache_dir=None))
    for circle in found:
        print("modules that import each other: " + ", ".join(sorted(circle)))
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
