"""Runs cases in a child process and stores their results.

A crash of the compiler or of a driver ends the child, not the run. Each result is stored when its case is finished, so
that an interrupted run can be resumed.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGETS = ("cpu", "vulkan:lavapipe")
# Emulated devices run only the cases of at most this many multiply-adds.
LARGEST = 2**16
# Limit in seconds of loading (when a Vulkan driver compiles) and running the programs of a case, by target.
LIMIT = {"vulkan:lavapipe": 60.0}
# A child that reports nothing for this many seconds is ended; that includes compilation, reference and data.
PATIENCE = 600.0


@cache
def cases() -> list[dict[str, Any]]:
    """The cases, in upstream's order."""
    return list(json.loads((HERE / "cases.json").read_text()))


def cases_of(target: str) -> list[dict[str, Any]]:
    """The cases that a target runs: all, or the small ones on an emulated device. A case without sizes uses those of
    the documentation's example, which is large."""
    return [c for c in cases() if target in TARGETS or (size(c) <= LARGEST and (c.get("M") or "conv" in c))]


def results_file(target: str) -> Path:
    return HERE / "results" / f"{target.replace(':', '-')}.json"


def results(target: str) -> dict[str, dict[str, Any]]:
    """The stored results of a target, by case id."""
    file = results_file(target)
    return {r["id"]: r for r in json.loads(file.read_text())} if file.exists() else {}


def keep(target: str, row: dict[str, Any]) -> None:
    """Stores a result, in the order of the cases. Several processes may do so concurrently."""
    from filelock import FileLock

    from qmlir.core.files import write_atomically

    file = results_file(target)
    file.parent.mkdir(exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        found = {**results(target), row["id"]: row}
        rows = [json.dumps(found[c["id"]], separators=(",", ":")) for c in cases() if c["id"] in found]
        write_atomically(file, ("[\n" + ",\n".join(rows) + "\n]\n").encode())


def run_case(
    case: dict[str, Any], target: str, say: Callable[[Any], None] = lambda _: None, most: int | None = None
) -> dict[str, Any]:
    """Runs the variants of a case, at most `most`. Returns `{id, status, reason?, cut?, variants, seconds}`.

    `status` is `passed`, `cut` (passed with smaller M and N), `refused`, `failed` or `slow` (over the target's limit).
    `say` is called with the name of each phase.
    """
    import qmlir
    from qmlir.errors import CompileError, VerifyError

    from .case import Refused
    from .opened import opened
    from .scheme import variants

    row: dict[str, Any] = {"id": case["id"], "status": "passed", "variants": 0}
    spent = 0.0
    try:
        for variant in islice(variants(case), most):
            row["variants"] += 1
            if variant.cut:
                row |= {"status": "cut", "cut": variant.cut}
            if variant.program.notes:
                row["notes"] = variant.program.notes
            say("compile")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", qmlir.SlowFallbackWarning)
                artifact = variant.program.compile(target)
            say("run")
            start = time.perf_counter()
            main = opened(artifact, emulate=target not in TARGETS).main
            made = main(*[variant.program.arrays[n] for n in variant.program.arguments()])
            spent += time.perf_counter() - start
            say("judge")
            judge(variant.program, made)
    except Refused as e:
        row |= {"status": "refused", "reason": str(e)}
    except (VerifyError, CompileError, qmlir.QmlirError) as e:
        row |= {"status": "refused", "reason": _reason(e)}
    except AssertionError as e:
        row |= {"status": "failed", "reason": str(e)[:300]}
    if spent > LIMIT.get(target, float("inf")):
        row |= {"status": "slow", "reason": f"{spent:.0f} s"}
    return {**row, "seconds": round(spent, 3)}


def judge(program: Any, made: Any) -> None:
    """Raises AssertionError if a result does not agree with the reference."""
    from .judge import check

    check(program, list(made) if isinstance(made, (tuple, list)) else [made])


def _reason(e: Exception) -> str:
    """The text of an error without its line on the reproducer, which is a file of this machine."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith("reproducer:"))[:300]


def _child(connection: Any, target: str) -> None:
    while True:
        case = connection.recv()
        if case is None:
            return
        try:
            connection.send(("done", run_case(case, target, lambda phase: connection.send(("phase", phase)))))
        except Exception as e:  # the parent needs a result for every case
            row = {"id": case["id"], "status": "failed", "reason": f"{type(e).__name__}: {e}"[:300], "seconds": 0}
            connection.send(("done", row))


class Runner:
    """Runs cases one after another in a child process, which is restarted if it has died."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._process: Any = None
        self._connection: Any = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        if self._process is None or not self._process.is_alive():
            self._start()
        self._connection.send(case)
        phase, running, since = "start", 0.0, time.monotonic()
        limit = LIMIT.get(self.target)
        while True:
            left = PATIENCE - (time.monotonic() - since)
            if phase == "run" and limit is not None:
                left = min(left, limit - running - (time.monotonic() - since))
            try:
                heard = self._connection.recv() if self._connection.poll(max(left, 0.0)) else None
            except (EOFError, ConnectionError):
                self._process.join()
                code = self._process.exitcode
                self._end()
                return {"id": case["id"], "status": "failed", "reason": f"the process ended with {code} in {phase}"}
            if heard is None:
                self._end()
                if phase == "run" and limit is not None:
                    return {"id": case["id"], "status": "slow", "reason": f"over {limit:.0f} s"}
                return {"id": case["id"], "status": "failed", "reason": f"over {PATIENCE:.0f} s in {phase}"}
            kind, value = heard
            if kind == "done":
                return dict(value)
            if phase == "run":
                running += time.monotonic() - since
            phase, since = value, time.monotonic()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_child, args=(theirs, self.target), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
        self._process = None


def size(case: dict[str, Any]) -> int:
    """The approximate number of multiply-adds of a case before any cut, to sort the cases by."""
    if "conv" in case:
        v = case["conv"]
        return int(v["N"] * v["H"] * v["W"] * v["K"] * v["C"] * v["R"] * v["S"] // v["groups"])
    total = 1
    for name in ("M", "N", "K", "B", "topk"):
        total *= case.get(name) or 1
    return total


def weights(case: dict[str, Any]) -> int:
    """The number of weight codes of a product, over all experts."""
    return math.prod(case.get(name) or 1 for name in ("N", "K", "B", "E"))


def select(only: str | None, every: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases whose id, system or op contains the text `only`."""
    return [c for c in every if only is None or any(only in str(c[k]) for k in ("id", "system", "op"))]


def choose_device(target: str) -> None:
    """Makes lavapipe the only Vulkan device of this process if it is the target."""
    if target != "vulkan:lavapipe":
        return
    for folder in (Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d")):
        for driver in folder.glob("lvp_icd*.json"):
            os.environ.setdefault("VK_DRIVER_FILES", str(driver))
