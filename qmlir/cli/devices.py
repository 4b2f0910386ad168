"""`qmlir devices`: list the devices of this machine, and the drivers that can be emulated."""

from __future__ import annotations

import argparse
import json
from typing import TypedDict

from .arguments import command, print_table


class DeviceRow(TypedDict):
    """A device, or a driver that can be emulated."""

    driver: str
    uri: str
    name: str
    arch: str
    targets: list[str]
    emulated: bool


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's arguments."""
    p = command(commands, "devices", "[options]", "list the devices of this machine",
                "List the devices of this machine, each with the targets whose programs it runs, and the drivers whose "
                "devices --emulate executes.")  # fmt: skip
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def listed() -> list[DeviceRow]:
    """A row per device with its driver, URI (for `qmlir run --device`), name, architecture and the targets whose
    programs it runs, best first; then a row per driver that is emulated and has no device on this machine."""
    from ..emulation.backends import BACKENDS as EMULATED, emulated_targets
    from ..targets import BACKENDS, HOST, backend_description, resolve
    from ..targets.devices import devices, present_device

    host = resolve(HOST)
    here = [t.spelling for t in (host, *backend_description(HOST).TARGETS) if present_device(t)]
    rows = [_row(HOST, host.driver, present_device(host), "", here)]
    drivers = {t.driver: b for b in BACKENDS if not BACKENDS[b].on_host for t in backend_description(b).TARGETS}
    for driver, backend in sorted(drivers.items()):
        names_for = backend_description(backend).names_for
        for d in devices(driver):
            rows.append(_row(driver, d.uri, d.name, d.arch, [f"{backend}:{name}" for name in names_for(d)]))
    present = {row["driver"] for row in rows}
    emulated = {b.driver: name for name, b in EMULATED.items() if b.complete and b.driver not in present}
    for driver, backend in sorted(emulated.items()):
        targets = [t for t in emulated_targets() if t.startswith(f"{backend}:")]
        rows.append(_row(driver, "", "emulated", "", targets))
    return rows


def _row(driver: str, uri: str, name: str, arch: str, targets: list[str]) -> DeviceRow:
    return {"driver": driver, "uri": uri, "name": name, "arch": arch, "targets": targets, "emulated": not uri}


def run(args: argparse.Namespace) -> int:
    rows = listed()
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    print_table(
        ("driver", "device", "name", "programs for"),
        ((row["driver"], row["uri"] or "--emulate", f"{row['name']} {row['arch']}".strip(),
          ", ".join(row["targets"]) or "-") for row in rows),
    )  # fmt: skip
    return 0
