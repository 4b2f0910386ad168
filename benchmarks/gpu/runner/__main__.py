"""Checks the programs of this folder on a device, then measures them against their peers.

run                      checks, then measures; needs the device of the programs
run --checks             checks only
run --dry                reads every file and loads every program as far as that goes without a device
run --device local-sync  programs that were built for a CPU

Needs numpy and iree-base-runtime (unpacked from wheels/ where it is not installed); torch, gemlite and triton are peers
where they are there. Exit status 1 when a check fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER / "runner"))
if importlib.util.find_spec("numpy") is None:
    sys.exit(f"{sys.executable} has no numpy: install it (pip install numpy), or name another Python in PYTHON")

from arguments import Arrays  # noqa: E402
from device import Device, NoDevice, find_runtime, read_program  # noqa: E402
from report import environment, table  # noqa: E402


def check(
    contents: dict[str, Any], devices: dict[str, Device], arrays: Arrays, only: list[str]
) -> list[dict[str, Any]]:
    """What came of every case: `right`, `wrong`, `refused` (by the compiler), `failed`, or `no device`."""
    import judge

    results = []
    loaded: tuple[str, Any] = ("", None)
    for case in contents["checks"]:
        if only and not any(o.lower() in case["name"].lower() for o in only):
            continue
        row = {"name": case["name"], "family": case["family"], "target": case["target"]}
        results.append(row)
        if "refused" in case:
            row |= {"result": "refused", "why": case["refused"]}
            continue
        program = case["program"]
        device = devices.get(program["driver"])
        if device is None:
            row |= {"result": "no device", "why": program["driver"]}
            continue
        try:
            if loaded[0] != program["file"]:
                loaded = (program["file"], device.load(FOLDER / program["file"], []))
            pairs = zip(case["inputs"], program["inputs"], strict=True)
            inputs = [(arrays.stored[name], i["dtype"]) for name, i in pairs]
            (got,) = loaded[1].call_arrays(inputs, program["outputs"])
            row |= judge.judged(got, arrays.stored[case["expected"]], case["tolerance"])
        except Exception as e:  # whatever a driver says belongs into the report
            row |= {"result": "failed", "why": f"{type(e).__name__}: {e}"[:500]}
        if row["result"] != "right":
            print(f"{row['result']:10} {row['target']:14} {row['name']}: {row.get('why', '')}", flush=True)
    for target in sorted({r["target"] for r in results}):
        mine = [r["result"] for r in results if r["target"] == target]
        print(f"{target}: " + ", ".join(f"{mine.count(k)} {k}" for k in dict.fromkeys(mine)), flush=True)
    return results


def measure(contents: dict[str, Any], device: Device, arrays: Arrays, args: argparse.Namespace) -> list[dict[str, Any]]:
    from measure import measured
    from peers import Peers

    peers = Peers(args.seconds)
    if peers.absent:
        print(f"peers: {peers.absent}", flush=True)
    rows = []
    for work in contents["works"]:
        if args.only and not any(o.lower() in work["name"].lower() for o in args.only):
            continue
        row = measured(work, FOLDER, device, arrays, peers, args.seconds)
        rows.append(row)
        print(table([row], heads=False), flush=True)
        write(args, contents, [], rows)
    return rows


def dry(contents: dict[str, Any], arrays: Arrays) -> int:
    """Everything that can be done without a device."""
    wrong = 0
    seen = set()
    for entry in (*contents["checks"], *contents["works"]):
        if "refused" in entry:
            print(f"refused by the compiler: {entry['name']}: {entry['refused']}")
            continue
        program = entry["program"]
        missing = [n for n in (*entry.get("inputs", ()), *([entry["expected"]] if "expected" in entry else ()))
                   if n not in arrays.stored]  # fmt: skip
        if missing:
            wrong += 1
            print(f"{entry['name']}: no array {missing[0]}")
        if program["file"] in seen:
            continue
        seen.add(program["file"])
        try:
            read_program(FOLDER / program["file"], program["draw"], seed=0)
        except Exception as e:
            wrong += 1
            print(f"{entry['name']}: {program['file']}: {type(e).__name__}: {e}")
    print(f"{len(contents['checks'])} checks, {len(contents['works'])} works, {len(seen)} programs, {wrong} wrong")
    return wrong


def write(args: argparse.Namespace, contents: dict[str, Any], checks: list[Any], works: list[Any]) -> None:
    """A run that is stopped has left what it found."""
    if args.json:
        result = {"environment": environment(), "versions": contents["versions"], "target": contents["target"]}
        if checks or not args.json.exists():
            write.checks = checks  # type: ignore[attr-defined]
        args.json.write_text(
            json.dumps({**result, "checks": getattr(write, "checks", checks), "works": works}, indent=1) + "\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="an IREE driver, in the place of the programs' own: cuda, vulkan, local-sync")
    parser.add_argument("--checks", action="store_true", help="check only")
    parser.add_argument("--measure", action="store_true", help="measure only")
    parser.add_argument("--dry", action="store_true", help="no device: read and verify everything")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="checks and works with NAME in them"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="of each candidate (default: 0.5)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write what was found to a file")
    args = parser.parse_args()
    contents = json.loads((FOLDER / "works.json").read_text())
    print(find_runtime(FOLDER), flush=True)
    arrays = Arrays(FOLDER / "arrays.npz")
    if args.dry:
        return 1 if dry(contents, arrays) else 0
    drivers = {e["program"]["driver"] for e in (*contents["checks"], *contents["works"]) if "program" in e}
    devices = {}
    for driver in sorted(drivers):
        try:
            devices[driver] = Device(args.device if args.device and len(drivers) == 1 else driver)
        except NoDevice as e:
            print(f"no device for {driver}: {e}", flush=True)
    if not devices:
        return 1
    checks, rows = [], []
    if not args.measure:
        checks = check(contents, devices, arrays, args.only)
        write(args, contents, checks, [])
    if not args.checks:
        own = next((w["program"]["driver"] for w in contents["works"] if "program" in w), None)
        if own in devices:
            rows = measure(contents, devices[own], arrays, args)
            print(table(rows), flush=True)
    write(args, contents, checks, rows)
    return 1 if any(c["result"] in ("wrong", "failed") for c in checks) else 0


if __name__ == "__main__":
    raise SystemExit(main())
