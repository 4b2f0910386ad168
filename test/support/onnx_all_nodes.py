"""Run every node test of the onnx package in child processes: each is right or refused by name.

python test/support/onnx_all_nodes.py [--only TEXT]      # runs them, writes onnx_all_nodes.json

The recorded outcome of a test is `right`, or `refused: ` and the message of the front end. Anything else (`wrong`,
`failed` for an error of the compiler, `crashed`, `timeout`) is a defect, and no recorded outcome may be one. The
quantised operators have a separate, stricter test (`onnx_nodes.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for the package `support`

from support import children
from support.children import is_acceptable

RESULTS = Path(__file__).with_name("onnx_all_nodes.json")


def outcomes(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The outcome of each test on the CPU, in child processes."""
    cases()  # inherited by the children
    return children.outcomes(names, lambda name: _outcome(cases()[name]))


def _outcome(case: Any) -> str:
    from support.onnx_nodes import compare

    import qmlir

    def compared(artifact: Any) -> str:
        compare(case, artifact)
        return "right"

    return children.outcome(lambda: qmlir.compile(case.model, cache=False), compared)


def cases() -> dict[str, Any]:
    """The tests by name."""
    from support.onnx_nodes import every_case

    return every_case()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression of names; the others' outcomes are kept")
    parser.add_argument("--not-right", action="store_true", help="only those whose recorded outcome is not `right`")
    arguments = parser.parse_args()
    import onnx

    known: dict[str, str] = json.loads(RESULTS.read_text())["tests"] if RESULTS.exists() else {}
    names = [n for n in sorted(cases()) if re.search(arguments.only, n)]
    if arguments.not_right:
        names = [n for n in names if known.get(n) != "right"]
    start = time.perf_counter()
    for name, found in outcomes(names):
        known[name] = found
        now = time.perf_counter()
        print(f"{now - start:5.1f} s {name}: {found}", flush=True)
        start = now
        RESULTS.write_text(json.dumps({"onnx": onnx.__version__, "tests": known}, indent=1, sort_keys=True) + "\n")
    return 0 if all(map(is_acceptable, known.values())) else 1


if __name__ == "__main__":
    raise SystemExit(main())
