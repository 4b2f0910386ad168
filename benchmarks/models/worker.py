"""Measures one model in one form, in a process of its own with limits of time and memory."""

from __future__ import annotations

import json
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qmlir.core.isolation import ProcessLimits, in_fork
from qmlir.errors import CompileError, QmlirError

from ..harness import commit, race
from .architectures import SEED, TABLE
from .forms import FORMS, Case, arrays, float64


def key(name: str, form: str, dynamic: bool) -> str:
    """The name of a row."""
    return f"{name} / {form}" + (" / dynamic" if dynamic else "")


def measured(name: str, form: str, dynamic: bool, rounds: int, limits: ProcessLimits) -> dict[str, Any]:
    """The row of a model: the result of `measure` in a child process, or `died` with the reason."""
    row = {"model": name, "library": TABLE[name].library, "form": form, "dynamic": dynamic, "commit": commit()}
    try:
        return row | json.loads(in_fork(lambda: json.dumps(measure(name, form, dynamic, rounds)).encode(), limits))
    except (CompileError, QmlirError) as e:
        return row | {"import": "died", "message": _message(e)}


def measure(name: str, form: str, dynamic: bool, rounds: int) -> dict[str, Any]:
    """Measures a model. `import` is ok, refused (with `message`), died, or not made if other projects' tools cannot
    make the form. Errors are shares of the largest value. With `rounds` = 0 the times are left out."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    made = FORMS[form]
    try:
        with torch.no_grad():
            model, args = TABLE[name].make(SEED)
            truth = float64(model, args) if made.quantised else None
            case = made.make(model, args, TABLE[name], dynamic)
            expected = list(case.peer())
    except Exception as e:
        return {"import": "not made", "message": _message(e)}
    _reset_peak()
    before, start, cpu = _resident(), time.perf_counter(), _cpu()
    try:
        run = _ours(case)
        found = run()
    except QmlirError as e:
        return {"import": "refused", "message": _message(e)}
    except Exception as e:  # torch.compile wraps the error of qmlir
        cause = getattr(e, "inner_exception", None) or e.__cause__ or e
        return {"import": "refused" if isinstance(cause, QmlirError) else "died", "message": _message(cause)}
    result: dict[str, Any] = {
        "import": "ok", "near": made.near, "peer": case.peer_name, "error": distance(found, expected),
        "compile_s": round(time.perf_counter() - start, 2), "compile_cpu_s": round(_cpu() - cpu, 2),
        "compile_mib": max(0, _peak() - before) >> 20,
    }  # fmt: skip
    if truth is not None:
        result |= {"error64": distance(found, truth), "peer_error64": distance(expected, truth)}
    if rounds:
        times = race({"ours": run, "peer": case.peer}, rounds)
        ratio = times["ours"].ratio(times["peer"])
        result |= {"ours_ms": times["ours"].median() * 1e3, "peer_ms": times["peer"].median() * 1e3,
                   "ratio": ratio["median"], "p10": ratio["p10"], "p90": ratio["p90"]}  # fmt: skip
    return result


def _ours(case: Case) -> Any:
    import torch

    import qmlir

    if case.module is not None:

        def call() -> Any:
            with torch.no_grad():
                return arrays(case.module(*case.arguments))

        return call
    main = qmlir.load(qmlir.compile(case.source, cache=False)).main
    return lambda: arrays(main(*case.arguments))


def distance(found: Any, expected: Any) -> float:
    """The largest difference as a share of the largest value, over all results; infinite if a result is not finite or
    has another shape."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if x.shape != y.shape or not np.isfinite(x).all():
            return float("inf")
        worst = max(worst, float(np.abs(x - y).max(initial=0) / max(np.abs(y).max(initial=0), 1e-30)))
    return worst


def _message(e: BaseException) -> str:
    import torch

    text = f"{type(e).__name__}: {e}"
    for folder in (Path(torch.__file__).parents[1], Path(__file__).parents[2]):  # without this machine's paths
        text = text.replace(f"{folder}/", "")
    return text[:2000]


def _cpu() -> float:
    mine, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + others.ru_utime + others.ru_stime


def _status(name: str) -> int:
    line = next(t for t in Path("/proc/self/status").read_text().splitlines() if t.startswith(name))
    return int(line.split()[1]) << 10


def _resident() -> int:
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
