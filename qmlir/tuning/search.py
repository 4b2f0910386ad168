"""The search: candidates from the strategies' declared spaces, compiled in child processes, then measured."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from .. import settings
from ..compiler.choices import ranked, space_of
from ..compiler.explanation import Explanation, explain
from ..compiler.tuning_database import Database, Record, key_of
from ..core.files import digest_of_file, write_atomically
from ..core.progress import Step
from ..errors import UsageError
from ..report import html
from ..targets import resolve
from ..targets.devices import present_device
from ..targets.strategy import Choice, seconds_text
from .measure import PLAN, Candidate, TuningPlan, measure_folder, read_plan, read_results

# Running compilers of this process, for callers that end it early.
RUNNING: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True)
class TuneReport:
    """The outcome of tuning: `rows` are the measured choices with their times, best first."""

    key: str
    rows: tuple[Record, ...]
    compiled: int
    same: int  # candidates with the code of another one
    failed: int
    unmeasured: int
    choice: Choice  # {} when the default is best

    def __str__(self) -> str:
        lines = [f"{self.compiled} compiled, {self.same} of the same code, {self.failed} failed, "
                 f"{len(self.rows)} measured, {self.unmeasured} left"]  # fmt: skip
        lines += [f"  {r.ratio:>6.3f}  {seconds_text(r.seconds):>9}  {choice_text(dict(r.choice))}" for r in self.rows]
        chosen = choice_text(self.choice) if self.choice else "the default: nothing measured is clearly faster"
        return "\n".join([*lines, f"best: {chosen}"])

    def _repr_html_(self) -> str:
        rows = [(f"{r.ratio:.3f}", seconds_text(r.seconds), choice_text(dict(r.choice))) for r in self.rows]
        return html.section(self.key, html.table(("time relative to the default", "time", "choice"), rows))


def choice_text(choice: Choice) -> str:
    return ", ".join(f"{k} {v}" for k, v in choice.items()) or "default"


def emit(
    source: Path, folder: Path, *, target: str, function: str = "main", size: int = 4, budget: float = 300.0,
    jobs: int | None = None, parameters: Mapping[str, str] | None = None, step: Step = lambda text: None,
) -> TuningPlan:  # fmt: skip
    """Compile the candidates into a folder, several at once, each in a child process. Candidates that are already in
    the folder are kept. Returns the plan, which is also written into the folder."""
    resolved = resolve(target)

    def explained(choice: Choice) -> Explanation:
        return explain(source, target=target, parameters=dict(parameters or {}), choice=choice)

    explanation = explained({})
    key = key_of(resolved, explanation.contractions)
    digest = _digest(source)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PLAN
    weights = {scope: _digest(Path(file)) for scope, file in (parameters or {}).items()}
    head = {"key": key, "target": resolved.spelling, "host": resolved.host, "sha256": digest, "parameters": weights,
            "function": function, "size": size}  # fmt: skip
    plan = read_plan(folder, compiled=False) if path.exists() else None
    if plan is not None and {k: plan.get(k) for k in head} != head:
        raise UsageError(f"{folder} holds candidates of another program, target or version; use another folder")
    if plan is None:
        step("ranking the choices with the cost model")
        found = ranked(resolved, space_of(resolved, explanation.contractions), explained)
        candidates = [{"name": f"{i:03}", "choice": c} for i, c in enumerate(found)]
        plan = cast(TuningPlan, {**head, "candidates": candidates})
        write_atomically(path, json.dumps(plan, indent=1).encode())
    end = time.monotonic() + budget
    done = [0]

    def build(candidate: Candidate) -> None:
        out = folder / f"{candidate['name']}.vmfb"
        if _code_hash(out) is not None or candidate.get("error") or time.monotonic() > end:
            return
        command = [sys.executable, "-m", "qmlir", "compile", str(source), "-t", target, "-o", str(out), "-q"]
        command += [f"--parameters={scope}={file}" for scope, file in (parameters or {}).items()]
        command += [f"--choice={name}={value}" for name, value in candidate["choice"].items()]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        RUNNING.add(child)
        try:
            output = child.communicate(timeout=max(30.0, end - time.monotonic()))[1].strip()
        except subprocess.TimeoutExpired:
            child.kill()
            output = "the compiler did not finish in time"
        RUNNING.discard(child)
        done[0] += 1
        step(f"compiling candidate {done[0]} of {len(plan['candidates'])}")
        if child.wait():
            candidate["error"] = output.partition("\n")[0] or "no reason"

    with ThreadPoolExecutor(jobs or max(1, settings.threads())) as pool:
        list(pool.map(build, plan["candidates"]))
    seen: dict[str, str] = {}
    for candidate in plan["candidates"]:
        out = folder / f"{candidate['name']}.vmfb"
        code = _code_hash(out)
        if code is not None:
            if code in seen:
                candidate["same"] = seen[code]
            else:
                seen[code] = candidate["name"]
                candidate["file"] = out.name
    write_atomically(path, json.dumps(plan, indent=1).encode())
    return plan


def _digest(path: Path) -> str:
    """Raises UsageError for a file that cannot be read."""
    try:
        return digest_of_file(path)
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from None


def _code_hash(path: Path) -> str | None:
    """The hash of a file's device code and constants, without its manifest, which names the flags. None if the file is
    missing or damaged."""
    h = hashlib.sha256()
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in sorted(archive.infolist(), key=lambda e: e.filename):
                if entry.filename != "module.fb":
                    h.update(entry.filename.encode() + archive.read(entry))
    except (OSError, zipfile.BadZipFile):
        return None
    return h.hexdigest()


def conclude(folder: Path, device: str) -> tuple[Database, TuneReport]:
    """The folder's results as a database of one key, and as a report."""
    plan, results = read_plan(folder), read_results(folder)
    database, rows = Database(), list[Record]()
    for c in plan["candidates"]:
        found = results.get(c["name"])
        if found and "seconds" in found:
            rows.append(Record(tuple(sorted(c["choice"].items())), found["seconds"], found["baseline"],
                               found.get("device", device)))  # fmt: skip
    for r in rows:
        database.add(plan["key"], r)
    rows.sort(key=lambda r: r.ratio)
    every = plan["candidates"]
    report = TuneReport(
        plan["key"], tuple(rows), sum("file" in c for c in every), sum("same" in c for c in every),
        sum("error" in c for c in every) + sum("error" in r for r in results.values()),
        sum("file" in c for c in every) - len(results), database.best(plan["key"]) or {},
    )  # fmt: skip
    return database, report


def tune(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], *, target: str = "cpu", budget: float = 300.0,
    function: str = "main", size: int = 4, jobs: int | None = None, parameters: Mapping[str, str] | None = None,
    step: Step = lambda text: None,
) -> tuple[Database, TuneReport]:  # fmt: skip
    """Compile a program with different choices for the knobs of the target's strategies, and measure them on this
    machine. Returns the database with the best choice for each contraction, and a report of all candidates.

    A choice is taken when it needs at most 98 % of the default's time.

    Args:
        source: path of a file that `qmlir.compile` takes: `.mlir`, `.onnx` or `.pt2`.
        folder: where candidates are kept; an interrupted search continues if it is given the same folder.
        budget: seconds for the whole search.
        step: a function that is called with a text before each step.
        function, size: the function to measure, and the size of its dynamic axes.
        jobs: how many candidates are compiled at once; default: as many as there are CPUs.
        parameters: weight files by scope, as of `qmlir.compile`.

    Raises:
        UsageError: a source or folder that cannot be used.
        QmlirError: what `qmlir.compile` raises for the default choice.
    """
    start = time.monotonic()
    plan = emit(Path(source), Path(folder), target=target, function=function, size=size, budget=budget * 0.6, jobs=jobs,
                parameters=parameters, step=step)  # fmt: skip
    measure_folder(Path(folder), max(budget - (time.monotonic() - start), 1.0), step)
    return conclude(Path(folder), device_name(plan["target"]))


def device_name(target: str) -> str:
    """The device that the times were measured on."""
    return present_device(resolve(target)) or "unknown"
