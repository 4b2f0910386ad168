"""Import circles in qmlir, imports inside functions included: `python tools/import_circles.py FOLDER`.

FOLDER holds the package as a wheel would (`make lint` puts `qmlir`, `dialect` and `passes` together there). A circle
that is not in `KNOWN` is an error, and so is a module of `KNOWN` that is in none any more: the list only shrinks.
"""

from __future__ import annotations

import sys

import grimp

# What is left of a circle of 20 files: an artifact can be loaded, explained and compiled again by its own methods, and
# the compiler puts programs into artifacts.
KNOWN = (
    frozenset({
        "artifact", "compiler", "emulation.program", "explanation", "inspection", "packed", "rebuilding", "runtime",
        "targets.cpu.threads.team", "tuning.choices",
    }),
)  # fmt: skip


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
    wrong = 0
    for circle in found:
        if circle not in KNOWN:
            print("modules that import each other: " + ", ".join(sorted(circle)))
            wrong = 1
    for circle in KNOWN:
        if circle not in found and not wrong:
            print("no circle any more, take it out of KNOWN in tools/import_circles.py: " + ", ".join(sorted(circle)))
            wrong = 1
    return wrong


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
