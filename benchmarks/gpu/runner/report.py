"""The results as text."""

from __future__ import annotations

import platform
import subprocess
from typing import Any


def environment() -> dict[str, Any]:
    """The machine and the versions of the packages."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("iree-base-runtime", "numpy", "torch", "triton", "gemlite"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found["gpu"] = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found["gpu"] = ""
    return found


def table(rows: list[dict[str, Any]], heads: bool = True) -> str:
    """One line per work; missed goals are marked."""
    lines = []
    if heads:
        lines.append(f"{'work':58} {'us':>10} {'kernels':>8} {'Top/s':>8} {'GB/s':>8}  ours / peer")
    for row in rows:
        if "refused" in row:
            lines.append(f"{row['name']:58} refused: {row['refused']}")
            continue
        goals = dict(row["goals"])
        parts = []
        for name, ratio in row["ratios"].items():
            goal = goals.get(name)
            mark = "" if goal is None else f" (goal {goal}: {'met' if ratio <= goal else 'MISSED'})"
            parts.append(f"{ratio:.2f} {name}{mark}")
        parts += [f"absent: {name} ({why})" for name, why in row["missing"].items()]
        share = row.get("share")
        if share and share["got"] is not None:
            verdict = "met" if share["got"] >= share["wanted"] else "MISSED"
            parts.insert(0, f"{share['got']:.0%} of {share['of']} (goal {share['wanted']:.0%}: {verdict})")
        kernels = f"{row['kernels']:8.1f}" if "kernels" in row else 8 * " "
        figures = f"{row['us']['ours']:10.1f} {kernels} {row['ops_per_s'] / 1e12:8.1f} {row['bytes_per_s'] / 1e9:8.1f}"
        lines.append(f"{row['name']:58} {figures}  {'; '.join(parts)}")
    return "\n".join(lines)
