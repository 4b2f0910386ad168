"""What samples 02 to 07 share: options, comparisons with the reference, and the table that they print."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

# |error| <= relative * |reference| + K * 2^-24 * sum|terms| (docs/semantics.md, section 5), by output type.
_RELATIVE = {"float32": 2.0**-22, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def target_option(doc: str | None) -> str:
    """The command line's `--target`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu)")
    target: str = parser.parse_args().target
    return target


def median_seconds(call: Callable[[], Any], budget: float = 0.5) -> float:
    """The median of three or more calls, as many as fit in `budget` seconds, after a first one. If the first takes
    longer than three seconds, as on a software device, its time is returned."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    if first > 3:
        return first
    durations: list[float] = []
    end = time.perf_counter() + budget
    while len(durations) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def terms(lhs: Any, rhs: Any) -> Any:
    """K * sum_k |lhs[m, k] * rhs[n, k]|: what the rounding of a float sum is measured by."""
    a, b = (np.abs(x.astype(np.float64)) for x in (lhs, rhs))
    return a.shape[-1] * (a @ b.T)


class Report:
    """Rows of a table, and whether any of them is wrong."""

    def __init__(self, title: str, target: str) -> None:
        self._table = Table(title=f"{title}, {target}")
        for column in ("function", "operands", "against the reference", "time per call"):
            self._table.add_column(column, no_wrap=column != "operands")
        self._wrong: list[str] = []

    def exact(self, name: str, operands: str, call: Callable[[], Any], reference: Any, codes: int = 0) -> Any:
        """The same bits; or integers at most `codes` apart, in at most one of a thousand places."""
        result = np.asarray(call())
        apart = np.abs(result.astype(np.float64) - reference.astype(np.float64))
        good = result.dtype == reference.dtype and result.shape == reference.shape and bool((apart <= codes).all())
        share = float(np.mean(apart > 0)) if apart.size else 0.0
        good = good and share <= 1e-3
        text = "exact" if share == 0 else f"{share:.4%} of the codes differ by at most {apart.max():.0f}"
        self._row(name, operands, text, good, call)
        return result

    def close(self, name: str, operands: str, call: Callable[[], Any], reference: Any, terms: Any) -> Any:
        """Within the bound of docs/semantics.md, section 5, of the float64 value `reference`."""
        result = np.asarray(call())
        bound = _RELATIVE[result.dtype.name] * np.abs(reference) + 2.0**-24 * np.asarray(terms)
        error = np.abs(result.astype(np.float64) - reference)
        share = float((error / bound).max())
        text = f"error {error.max():.1e}, {share:.2%} of the bound"
        self._row(name, operands, text, result.shape == reference.shape and share <= 1, call)
        return result

    def _row(self, name: str, operands: str, text: str, good: bool, call: Callable[[], Any]) -> None:
        if not good:
            self._wrong.append(name)
            text = f"[bold red]WRONG[/]: {text}"
        self._table.add_row(name, operands, text, f"{median_seconds(call, 0.1) * 1e6:.0f} us")

    def finish(self) -> int:
        """Prints the table; the exit code."""
        Console(width=max(Console().width, 120)).print(self._table)
        for name in self._wrong:
            print(f"{name} differs from the reference", file=sys.stderr)
        return 1 if self._wrong else 0
