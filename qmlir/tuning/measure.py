"""The measuring step: a folder of compiled candidates to times. Needs the runtime only."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import settings
from ..artifact import Artifact, write_atomically
from ..errors import InputError, QmlirError, UsageError

PLAN, RESULTS = "plan.json", "results.json"


def read_json(path: Path) -> Any:
    """Raises UsageError for what is no JSON file."""
    try:
        return json.loads(path.read_text())
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror or e}") from None
    except ValueError as e:
        raise UsageError(f"{path} is damaged: {e}") from None


def measure_folder(folder: Path, seconds: float, step: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Time every candidate in alternation with the first, which is the default; so what drifts on the machine meets
    both. Results are written after each, and those that are there are not measured again.

    Args:
        seconds: for all together; what does not fit stays unmeasured.

    Raises:
        UsageError: a folder that `emit` did not make, or that lacks the default.
    """
    from .. import inputs
    from ..measure import alternate
    from ..runtime import load

    plan = read_json(folder / PLAN)
    path = folder / RESULTS
    results: dict[str, Any] = read_json(path) if path.exists() else {}
    # One process on the CPUs that the runtime would use, so that nothing moves between them.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads()])
    names = [c["name"] for c in plan["candidates"] if c.get("file")]
    if not names or names[0] != plan["candidates"][0]["name"]:
        raise UsageError(f"{folder} has no default to compare with: its compilation failed")
    files = {c["name"]: folder / c["file"] for c in plan["candidates"] if c.get("file")}

    def caller(name: str) -> Callable[[], object]:
        artifact = Artifact.open(files[name])
        function = load(artifact).functions[plan["function"]]
        roles = artifact.manifest.get("arguments", {}).get(plan["function"])
        arguments = inputs.make(function.signature, roles, size=plan["size"])
        return lambda: function(*arguments)

    default = caller(names[0])
    end = time.monotonic() + seconds
    if names[0] not in results:
        [alone] = alternate([default], seconds=0.3)
        results[names[0]] = {"seconds": alone.median, "baseline": alone.median}
        _write(path, results)
    todo = [n for n in names[1:] if n not in results]
    for i, name in enumerate(todo):
        left = end - time.monotonic()
        if left <= 0:
            break
        step(f"measuring candidate {i + 1} of {len(todo)}")
        try:
            candidate = caller(name)
            share = max(0.3, min(3.0, left / (len(todo) - i)))
            base, own = alternate([default, candidate], seconds=share)
            results[name] = {"seconds": own.median, "baseline": base.median}
        except (InputError, QmlirError) as e:
            results[name] = {"error": str(e).splitlines()[0]}
        _write(path, results)
    # The best of many measurements is partly luck: it is measured again until the best one stands twice, and counts as
    # the slower of the two.
    while (best := _unconfirmed(results)) is not None and time.monotonic() < end:
        step(f"measuring {best} again")
        base, own = alternate([default, caller(best)], seconds=1.0)
        first = results[best]
        if own.median / base.median > first["seconds"] / first["baseline"]:
            first = {"seconds": own.median, "baseline": base.median}
        results[best] = {**first, "confirmed": True}
        _write(path, results)
    return results


def _write(path: Path, results: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(results, indent=1, sort_keys=True).encode())


def _unconfirmed(results: dict[str, Any]) -> str | None:
    """The best candidate when it was measured only once and is better than the default."""
    timed = {name: r["seconds"] / r["baseline"] for name, r in results.items() if "seconds" in r}
    best = min(timed, key=lambda name: timed[name], default=None)
    return best if best is not None and timed[best] < 1 and not results[best].get("confirmed") else None
