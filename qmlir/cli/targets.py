"""`qmlir targets`: list the targets, and the devices of this machine that run their programs."""

from __future__ import annotations

import argparse
import json

from ..core.rows import CapabilitiesRow
from .arguments import command, print_table


class _Row(CapabilitiesRow):
    device: str  # the name of a present device, or ""
    emulated: bool


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "targets", "[options] [{cpu,cuda,rocm,vulkan}]", "list the targets",
                "List what programs can be compiled for, all or one backend's, and the devices here.")  # fmt: skip
    p.add_argument("backend", nargs="?", choices=("cpu", "cuda", "rocm", "vulkan"), help=argparse.SUPPRESS)
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..emulation.backends import BACKENDS
    from ..targets import HOST, all_targets, resolve
    from ..targets.devices import present_device

    listed = [resolve(HOST), *all_targets()]
    emulated = {name for name, backend in BACKENDS.items() if backend.complete}
    rows: list[_Row] = [
        {**t.row(), "device": present_device(t), "emulated": t.backend in emulated}
        for t in listed
        if args.backend in (None, t.backend)
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    print_table(("target", "what it is", "int8 with", "device", "status"), map(_cells, rows))
    return 0


def _cells(row: _Row) -> tuple[str, ...]:
    kinds = [m for m in row["mma"] if m.endswith("I8")]
    # Two kinds are enough in the table; --json has all.
    int8 = ", ".join(kinds[:2]) + (", ..." if len(kinds) > 2 else "")
    int8 = int8 or ("dot products" if row["int8_dot"] else "f16 MMA" if row["mma"] else "vectors")
    device = row["device"] or ("emulated" if row["emulated"] else "-")
    return row["target"], row["summary"], int8, device, row["status"]
