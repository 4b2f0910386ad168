"""Results of a child process, which may die or hang."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import Any

MARK = "@result "


def say(index: int, row: dict[str, Any] | None) -> None:
    """Reports that the child has begun an entry (`row` is None) or finished it."""
    print(MARK + json.dumps([index, row]), flush=True)


def results(command: Sequence[str], indices: Sequence[int], seconds: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """The results that a child reports, up to the first failed one. An entry has failed if the child dies during it or
    spends more than `seconds` on it; if the child does not start, the first entry has failed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    at, last = indices[0], ""
    try:
        while True:
            line = lines.get(timeout=seconds)
            if line is None:
                break
            if not line.startswith(MARK):
                last = line.strip() or last
                continue
            at, row = json.loads(line[len(MARK) :])
            if row is not None:
                yield at, row
                if at == indices[-1] or row.get("result") == "failed":
                    return
                at = indices[list(indices).index(at) + 1]
        yield at, {"result": "failed", "why": f"the process ended with {process.wait()}: {last}"[:500]}
    except queue.Empty:
        yield at, {"result": "failed", "why": f"no answer in {seconds:.0f} s"}
    finally:
        process.kill()
        process.wait()
