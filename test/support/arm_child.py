"""Runs in the emulated Python (tools/arm.sh): loads a program in IREE's runtime and calls its functions.

Each line of standard input is a request, `{"program": path, "function": name, "calls": [[[path, kind], ...], ...],
"results": [[path, ...], ...]}`; the answer is a line too: `ok`, or what went wrong.
"""

from __future__ import annotations

import json
import sys

import iree.runtime as rt
import ml_dtypes
import numpy as np


def array_of(path: str, kind: str) -> np.ndarray:
    """Load an array. `kind` names its type if that is of ml_dtypes, because numpy's files do not; else it is ""."""
    array = np.load(path)
    return array.view(getattr(ml_dtypes, kind)) if kind else array


def answer(request: dict[str, object], config: rt.Config) -> str:
    context = rt.SystemContext(config=config)
    with open(str(request["program"]), "rb") as file:
        context.add_vm_module(rt.VmModule.copy_buffer(context.instance, file.read()))
    function = getattr(context.modules.module, str(request["function"]))
    calls, results = request["calls"], request["results"]
    assert isinstance(calls, list)
    assert isinstance(results, list)
    for inputs, paths in zip(calls, results, strict=True):
        made = function(*(array_of(*i) for i in inputs))
        for path, array in zip(paths, made if isinstance(made, tuple) else (made,), strict=True):
            np.save(path, array.to_host())
    return "ok"


def main() -> None:
    config = rt.Config("local-task")
    for line in sys.stdin:
        try:
            text = answer(json.loads(line), config)
        except Exception as e:
            text = f"{type(e).__name__}: {e}".replace("\n", " ")
        print(text, flush=True)


if __name__ == "__main__":
    main()
