"""The time of each dispatch of a program in microseconds, by the runtime's own profile.

    python -m benchmarks.dispatches PROGRAM.vmfb FUNCTION [INPUT ...] [--calls 20]

An input has the form of `iree-run-module --input` (`128xi32=5`, `@x.npy`). Calls use one thread. qmlir's kernels are
named `.._product_N`, `.._attention_N`, `.._rows_N`, those that IREE generates `.._dispatch_N_..`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"host_execute (\S+) +count=(\d+) total=([\d.]+) (ns|us|ms|s)\b")
_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


@dataclass(frozen=True)
class Dispatch:
    """A dispatch that runs `count` times per call, which take `microseconds` together."""

    name: str
    count: float
    microseconds: float


def dispatches(program: Path, function: str, inputs: Sequence[str], calls: int) -> list[Dispatch]:
    """The dispatches of one call, averaged over `calls`, longest first. Raises RuntimeError if the program fails."""
    import iree._runtime_libs as libs

    tools = Path(libs.__path__[0])
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.ireeprof"
        done = subprocess.run(
            [str(tools / "iree-benchmark-module"), f"--module={program}", "--device=local-sync",
             f"--function={function}", *(f"--input={i}" for i in inputs), f"--benchmark_min_time={calls}x",
             "--device_profiling_mode=host-execution,executable-metadata", f"--device_profiling_output={profile}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or "ERROR OCCURRED" in done.stdout:
            raise RuntimeError(f"{function} failed: {(done.stdout + done.stderr).strip()[-300:]}")
        output = subprocess.run([str(tools / "iree-profile"), "statistics", str(profile)], check=True,
                              capture_output=True, text=True).stdout  # fmt: skip
    found = [(name, int(count), float(total) * _MICROSECONDS[unit])
             for name, count, total, unit in _LINE.findall(output)]  # fmt: skip
    rows = [Dispatch(name, count / calls, total / calls) for name, count, total in found]
    return sorted(rows, key=lambda d: -d.microseconds)


def show(rows: Sequence[Dispatch]) -> None:
    from rich.table import Table

    from qmlir.cli import arguments

    table = Table("dispatch", "runs a call", "us a call", "share")
    total = sum(d.microseconds for d in rows)
    for d in rows:
        table.add_row(d.name, f"{d.count:g}", f"{d.microseconds:.1f}", f"{d.microseconds / total:.1%}")
    arguments.console().print(table)
    print(f"{total:.0f} us in {sum(d.count for d in rows):g} dispatches")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("function")
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("--calls", type=int, default=20)
    args = parser.parse_args(argv)
    show(dispatches(args.program, args.function, args.inputs, args.calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
