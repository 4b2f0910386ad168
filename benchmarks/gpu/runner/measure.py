"""Measures qmlir and the peers alternately on one work."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import drawn

ROUNDS = 5
INT8_PEAK = FP8_PEAK = 1979e12  # dense, of an H100 or H200 SXM (NVIDIA's data sheets)


def measured(work: dict[str, Any], folder: Path, device: Any, peers: Any, seconds: float) -> dict[str, Any]:
    """The row of a work: microseconds of one product for qmlir (and the part in kernels) and for every peer, the
    ratios, and the share of the device's limit if the work has a goal for it."""
    row = {"name": work["name"], "row": work["row"], "us": {}, "ratios": {}, "missing": {}, "goals": work["goals"]}
    if "refused" in work:
        return {**row, "refused": work["refused"]}
    try:
        ours = _ours(work, folder, device)
    except Exception as e:
        return {"result": "failed", "why": f"{type(e).__name__}: {e}"[:300]}
    candidates = {"ours": ours}
    for name in () if peers is None else work["peers"]:
        made, why = peers.make(name, work)
        if made is None:
            row["missing"][name] = why
        else:
            candidates[name] = made
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, burst in candidates.items():
            times[name] += burst(seconds / ROUNDS)
    row["us"] = {name: statistics.median(t) * 1e6 for name, t in times.items()}
    row["calls"] = {name: len(t) for name, t in times.items()}
    if peers is not None and (found := kernels(lambda: ours(0))) is not None:  # None if another profiler is attached
        row["kernels"] = found / work["repeats"]
    mine = row["us"]["ours"]
    row["ratios"] = {name: mine / us for name, us in row["us"].items() if name != "ours"}
    row["ops_per_s"] = work["operations"] / (mine * 1e-6)
    row["bytes_per_s"] = work["bytes"] / (mine * 1e-6)
    if work["share"]:
        kind, wanted = work["share"]
        limit = {"int8 peak": INT8_PEAK, "fp8 peak": FP8_PEAK, "copy bandwidth": peers and peers.copy_bandwidth()}[kind]
        done = row["bytes_per_s"] if kind == "copy bandwidth" else row["ops_per_s"]
        row["share"] = {"of": kind, "wanted": wanted, "got": done / limit if limit else None}
    return row


def kernels(call: Callable[[], object]) -> float | None:
    """Microseconds that the device spends in the kernels of a call; None if torch's profiler is unavailable."""
    try:
        from torch.profiler import ProfilerActivity, profile, supported_activities
    except ImportError:
        return None
    if ProfilerActivity.CUDA not in supported_activities():
        return None
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        for _ in range(2):  # the first loads the profiler
            with profile(activities=[ProfilerActivity.CUDA]) as recorded:
                call()
        recorded.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    return sum(event["dur"] for event in events if event.get("cat") == "kernel") or None


def _ours(work: dict[str, Any], folder: Path, device: Any) -> Any:
    """A function that runs calls for some seconds and returns, for each call, the seconds per product."""
    program = work["program"]
    loaded = device.load(folder / program["file"], program["draw"], seed=1)
    sets = [[device.buffer(drawn(o, 100 * i + j), o["dtype"]) for j, o in enumerate(work["operands"])]
            for i in range(work["copies"])]  # fmt: skip
    shared = [device.buffer(drawn(o, 9000 + j), o["dtype"]) for j, o in enumerate(work["shared"])]
    buffers = [b for i in range(work["repeats"]) for b in sets[i % work["copies"]]] + shared
    count = len(program["outputs"])
    for _ in range(2):
        loaded.call(buffers, count)

    def burst(seconds: float) -> list[float]:
        times = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            loaded.call(buffers, count)
            times.append((time.perf_counter() - start) / work["repeats"])
        return times

    return burst
