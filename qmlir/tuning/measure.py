"""The measuring step: times a folder of compiled candidates. Needs the runtime only.

A candidate is timed in alternation with the default, so that drift of the machine affects both, and its results must be
the default's. `cluster.py` does the same on the workers of a cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, cast

from .. import settings
from ..checking.compare import Tolerance, compare
from ..core.files import write_atomically
from ..core.progress import Step
from ..core.spelling import function_named
from ..dialect.dtypes import Array
from ..errors import InputError, QmlirError, UsageError
from ..runtime import inputs
from ..runtime.artifact import Artifact
from ..runtime.program import load
from ..targets.cpu.host import host_name
from ..tools.timing import alternate
from .cpus import own_cpus

PLAN, RESULTS = "plan.json", "results.json"


class Result(TypedDict, total=False):
    """The measurement of a candidate: an error, or its time and that of the default, measured in alternation."""

    error: str
    seconds: float
    baseline: float
    device: str
    confirmed: bool  # measured again, for longer


class _Candidate(TypedDict):
    name: str
    choice: dict[str, int | str]


class Candidate(_Candidate, total=False):
    """A choice, and the outcome of its compilation."""

    file: str
    error: str
    same: str  # the candidate with the same code


class _Plan(TypedDict):
    key: str
    target: str
    sha256: str
    parameters: dict[str, str]
    function: str
    size: int
    candidates: list[Candidate]


class TuningPlan(_Plan, total=False):
    """The plan that `emit` writes into a folder."""

    host: str


# Seconds of a comparison: at least, at most, and for confirming the best.
_LEAST, _MOST, _CONFIRM = 0.3, 3.0, 1.0


def read_json(path: Path) -> dict[str, object]:
    """Read a file. Raises UsageError if it is not JSON of an object."""
    try:
        found = json.loads(path.read_text())
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path} is damaged: {e}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is damaged: it holds a {type(found).__name__}")
    return found


def read_plan(folder: Path, compiled: bool = True) -> TuningPlan:
    """The plan that `emit` wrote. With `compiled`, its default must be compiled.

    Raises:
        UsageError: there is no plan, it is damaged, or has no compiled default.
    """
    path = folder / PLAN
    plan = cast(TuningPlan, read_json(path))  # its content is checked below
    try:
        candidates = [(c["name"], dict(c["choice"]), c.get("file") or "") for c in plan["candidates"]]
        words = [plan["key"], plan["target"], plan["function"], plan.get("host", ""), plan["sha256"]]
        words += [text for name, choice, file in candidates for text in (name, file, *choice)]
        if not all(isinstance(w, str) for w in words):
            raise ValueError("a name is not text")
        if not all(isinstance(v, (str, int, float, bool)) for _, choice, _ in candidates for v in choice.values()):
            raise ValueError("a choice has values that are not plain ones")
        if type(plan["size"]) is not int or len({name for name, *_ in candidates}) < len(candidates):
            raise ValueError("a name occurs twice, or the size is not an integer")
        if compiled and not (candidates and candidates[0][2]):
            reason = plan["candidates"][0].get("error") if candidates else None
            raise UsageError(f"{folder} has no default to compare with: {reason or 'there was no time to compile it'}")
        if any(Path(file).name != file for *_, file in candidates):
            raise ValueError("a candidate's file is not in the folder")
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UsageError(f"{path} is damaged: {type(e).__name__} {e}") from None
    return plan


def read_results(folder: Path) -> dict[str, Result]:
    """The measurements so far."""
    path = folder / RESULTS
    found = cast("dict[str, Result]", read_json(path) if path.exists() else {})  # its content is checked below
    try:
        for name, row in found.items():
            if "error" not in row and not (0 < float(row["seconds"]) < 1e6 and 0 < float(row["baseline"]) < 1e6):
                raise ValueError(f"{name} has a time that is not a positive number of seconds")
            if not all(isinstance(row.get(k, ""), str) for k in ("error", "device")):
                raise ValueError(f"{name} has an error or a device that is not text")
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UsageError(f"{path} is damaged: {type(e).__name__} {e}") from None
    return dict(found)


class Caller:
    """A loaded candidate with random arguments, the same for all candidates."""

    def __init__(self, artifact: Artifact, function: str, size: int) -> None:
        self._function = function_named(load(artifact).functions, function)
        roles = artifact.manifest.arguments.get(function)
        self._arguments = inputs.make(self._function.signature, roles, size=size)

    def __call__(self) -> tuple[Array, ...]:
        results = self._function(*self._arguments)
        return results if isinstance(results, tuple) else (results,)


def versus(default: Caller, candidate: Caller, seconds: float) -> Result:
    """Time both in alternation. The result is an `error` if their results differ."""
    want, got = default(), candidate()
    # A fused multiply-add may move a requantised code by one.
    for i, (expected, found) in enumerate(zip(want, got, strict=True)):
        compared = compare(f"result {i}", found, expected, Tolerance(codes=1))
        if not compared.ok:
            return {"error": f"{compared.name} differs from the default's by {compared.max_error:g}"}
    base, own = alternate([default, candidate], seconds=seconds)
    return {"seconds": own.median, "baseline": base.median}


def check_host(host: str) -> None:
    """Raise UsageError if code for the bare target `cpu` of one machine is to be measured on another."""
    if host and host != host_name():
        raise UsageError(f"the candidates are compiled for the CPU {host}, but this one is {host_name()}; "
                         "name the CPU when they are compiled: --target cpu:NAME")  # fmt: skip


def measure_folder(folder: Path, seconds: float, step: Step = lambda text: None) -> dict[str, Result]:
    """Time every candidate against the first, which is the default. Results are written after each candidate, and
    candidates with results are not measured again.

    Args:
        seconds: for all candidates together; those for which no time is left stay unmeasured.

    Raises:
        UsageError: a folder that `emit` did not make, that lacks the default, or is for another machine.
    """
    plan, results = read_plan(folder), read_results(folder)
    check_host(plan.get("host", ""))
    # With as many CPUs as threads, IREE's workers are pinned (`core.hal`), so that nothing moves between CPUs.
    with own_cpus(settings.threads()):
        return _measure(folder, plan, results, seconds, step)


def _measure(
    folder: Path, plan: TuningPlan, results: dict[str, Result], seconds: float, step: Step
) -> dict[str, Result]:
    files = {c["name"]: folder / c["file"] for c in plan["candidates"] if c.get("file")}
    first, *others = files

    def caller(name: str) -> Caller:
        return Caller(Artifact.open(files[name]), plan["function"], plan["size"])

    default = caller(first)
    end = time.monotonic() + seconds
    if first not in results:
        [alone] = alternate([default], seconds=_LEAST)
        results[first] = {"seconds": alone.median, "baseline": alone.median}
        _write(folder, results)
    todo = [n for n in others if n not in results]
    for i, name in enumerate(todo):
        left = end - time.monotonic()
        if left <= 0:
            break
        step(f"measuring {progress(results)}, candidate {i + 1} of {len(todo)}")
        try:
            results[name] = versus(default, caller(name), max(_LEAST, min(_MOST, left / (len(todo) - i))))
        except (InputError, QmlirError) as e:
            results[name] = {"error": str(e).splitlines()[0]}
        _write(folder, results)
    # The best of many measurements is partly luck. It is measured again, and counts as the slower of the two, until the
    # best candidate is one that has been measured twice.
    while (best := unconfirmed(results)) is not None and time.monotonic() < end:
        step(f"measuring {best} again")
        results[best] = slower(results[best], versus(default, caller(best), _CONFIRM))
        _write(folder, results)
    return results


def progress(results: Mapping[str, Result]) -> str:
    """The best so far, for the progress bar."""
    ratios = [r["seconds"] / r["baseline"] for r in results.values() if "seconds" in r]
    return f"(best {min(ratios):.2f} of the default's time)" if ratios else ""


def slower(first: Result, second: Result) -> Result:
    """The slower of two measurements of one candidate, marked as `confirmed`."""
    kept = (
        second
        if second.get("seconds", 0.0) / second.get("baseline", 1.0) > first["seconds"] / first["baseline"]
        else first
    )
    return {**(second if "error" in second else kept), "confirmed": True}


def _write(folder: Path, results: Mapping[str, Result]) -> None:
    write_atomically(folder / RESULTS, json.dumps(results, indent=1, sort_keys=True).encode())


def unconfirmed(results: Mapping[str, Result]) -> str | None:
    """The best candidate if it was measured only once and is better than the default, otherwise None."""
    timed = {name: r["seconds"] / r["baseline"] for name, r in results.items() if "seconds" in r}
    best = min(timed, key=lambda name: timed[name], default=None)
    return best if best is not None and timed[best] < 1 and not results[best].get("confirmed") else None
