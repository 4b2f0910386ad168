"""Checks the programs of this folder on a device, then measures them against their peers.

run                      checks, then measures; needs the device of the programs
run --checks             checks only
run --dry                reads every file and loads every program as far as possible without a device
run --device local-sync  programs that were built for a CPU

Needs numpy and iree-base-runtime (unpacked from wheels/ if it is not installed). torch, gemlite and triton are peers if
they are installed. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(FOLDER / "runner"))
if importlib.util.find_spec("numpy") is None:
    sys.exit(f"{sys.executable} has no numpy: install it (pip install numpy), or name another Python in PYTHON")

import children  # noqa: E402
from arguments import Arrays  # noqa: E402
from device import Device, NoDevice, find_runtime, read_program  # noqa: E402
from report import environment, table  # noqa: E402

CALLS = 3  # of each check; results that differ between calls are wrong
CHECK_SECONDS, WORK_SECONDS = 60.0, 120.0  # after which the device counts as hung


def check(contents: dict[str, Any], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs every case. The results are `right`, `wrong`, `refused` (by the compiler), `failed`, or `no device`."""
    results = []
    for index, row in found_by_children("checks", chosen(contents["checks"], args.only), args, CHECK_SECONDS):
        case = contents["checks"][index]
        row = {"name": case["name"], "family": case["family"], "target": case["target"], **row}
        if row["result"] == "no device" and row["why"] not in {r.get("why") for r in results}:
            print(f"no device for {row['why']}", flush=True)
        results.append(row)
        if row["result"] not in ("right", "no device"):
            print(f"{row['result']:10} {row['target']:14} {row['name']}: {row.get('why', '')}", flush=True)
        write(args, contents, results, [])
    for target in sorted({r["target"] for r in results}):
        mine = [r["result"] for r in results if r["target"] == target]
        print(f"{target}: " + ", ".join(f"{mine.count(k)} {k}" for k in dict.fromkeys(mine)), flush=True)
    return results


def measure(contents: dict[str, Any], args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for index, row in found_by_children("works", chosen(contents["works"], args.only), args, WORK_SECONDS):
        work = contents["works"][index]
        if "result" in row:
            row = {"name": work["name"], "row": work["row"], "refused": f"{row['result']}: {row['why']}"}
        rows.append(row)
        print(table([row], heads=False), flush=True)
        write(args, contents, [], rows)
    return rows


def chosen(entries: list[dict[str, Any]], only: list[str]) -> list[int]:
    return [i for i, e in enumerate(entries) if not only or any(o.lower() in e["name"].lower() for o in only)]


def found_by_children(
    kind: str, indices: list[int], args: argparse.Namespace, seconds: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Results of the entries, computed by child processes. After an entry that fails, hangs or kills its process, a new
    process takes the remaining ones, because a fault on a device makes the process's device context unusable."""
    found: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()

    def work(mine: list[int]) -> None:
        while mine:
            begun = len(mine)
            for index, row in children.results([*command(kind, args), *map(str, mine)], mine, seconds):
                found.put((index, row))
                mine = [i for i in mine if i != index]
            assert len(mine) < begun

    jobs = args.jobs if kind == "checks" else 1
    size = -(-len(indices) // jobs)
    for at in range(0, len(indices), max(size, 1)):
        threading.Thread(target=work, args=(indices[at : at + size],), daemon=True).start()
    for _ in indices:
        yield found.get()


def command(kind: str, args: argparse.Namespace) -> list[str]:
    device = [*(["--device", args.device] if args.device else []), *(["--ours"] if args.ours else [])]
    return [sys.executable, str(FOLDER / "runner"), *device, "--seconds", str(args.seconds), "--child", kind]


def child(contents: dict[str, Any], args: argparse.Namespace) -> int:
    """Runs the entries with the given indices and prints a line of JSON for each. Ends after one that fails."""
    kind, indices = args.child[0], [int(i) for i in args.child[1:]]
    entries = [contents[kind][i] for i in indices]
    arrays = Arrays(FOLDER / "arrays.npz")
    drivers = {e["program"]["driver"] for e in entries if "program" in e}
    devices: dict[str, Device | NoDevice] = {}
    for driver in sorted(drivers):
        try:
            devices[driver] = Device(args.device if args.device else driver)
        except NoDevice as e:
            devices[driver] = e
    one = case_checker(devices, arrays) if kind == "checks" else work_measurer(devices, args.seconds, not args.ours)
    for index, entry in zip(indices, entries, strict=True):
        children.say(index, None)
        row = one(entry)
        children.say(index, row)
        if row.get("result") == "failed":
            return 1
    return 0


def case_checker(devices: Mapping[str, Device | NoDevice], arrays: Arrays) -> Callable[[dict[str, Any]], Any]:
    import judge

    loaded: tuple[str, Any] = ("", None)

    def one(case: dict[str, Any]) -> dict[str, Any]:
        nonlocal loaded
        if "refused" in case:
            return {"result": "refused", "why": case["refused"]}
        program = case["program"]
        device = devices[program["driver"]]
        if isinstance(device, NoDevice):
            return {"result": "no device", "why": f"{program['driver']}: {device}"}
        try:
            if loaded[0] != program["file"]:
                loaded = (program["file"], device.load(FOLDER / program["file"], []))
            pairs = zip(case["inputs"], program["inputs"], strict=True)
            inputs = [(arrays.stored[name], i["dtype"]) for name, i in pairs]
            calls = [loaded[1].call_arrays(inputs, program["outputs"]) for _ in range(CALLS)]
            expected = [arrays.stored[name] for name in case["expected"]]
            return judge.judged(calls, expected, program["outputs"], case["tolerance"])
        except Exception as e:  # the report shows any error of a driver
            return {"result": "failed", "why": f"{type(e).__name__}: {e}"[:500]}

    return one


def work_measurer(
    devices: Mapping[str, Device | NoDevice], seconds: float, with_peers: bool
) -> Callable[[dict[str, Any]], Any]:
    from measure import measured
    from peers import Peers

    peers = Peers(seconds) if with_peers else None

    def one(work: dict[str, Any]) -> dict[str, Any]:
        device = devices[work["program"]["driver"]] if "program" in work else None
        if isinstance(device, NoDevice):
            return {"result": "no device", "why": str(device)}
        return measured(work, FOLDER, device, peers, seconds)

    return one


def dry(contents: dict[str, Any], arrays: Arrays) -> int:
    """Verifies everything that needs no device. Returns the number of faulty entries."""
    wrong = 0
    seen = set()
    for entry in (*contents["checks"], *contents["works"]):
        if "refused" in entry:
            print(f"refused by the compiler: {entry['name']}: {entry['refused']}")
            continue
        program = entry["program"]
        missing = [n for n in (*entry.get("inputs", ()), *entry.get("expected", ())) if n not in arrays.stored]
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
    """Writes the results so far, so that an interrupted run leaves them."""
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
    parser.add_argument("--ours", action="store_true", help="measure no peers: what a profiler is to see")
    parser.add_argument("--jobs", type=int, default=1, help="processes that check at once (default: 1)")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write what was found to a file")
    args = parser.parse_args()
    contents = json.loads((FOLDER / "works.json").read_text())
    runtime = find_runtime(FOLDER)
    if args.child:
        return child(contents, args)
    print(runtime, flush=True)
    if args.dry:
        return 1 if dry(contents, Arrays(FOLDER / "arrays.npz")) else 0
    checks, rows = [], []
    if not args.measure:
        checks = check(contents, args)
    if not args.checks:
        rows = measure(contents, args)
        print(table(rows), flush=True)
    write(args, contents, checks, rows)
    found = {c["result"] for c in checks}
    absent = found == {"no device"} or (rows and all(r.get("refused", "").startswith("no device") for r in rows))
    return 1 if found & {"wrong", "failed"} or absent else 0


if __name__ == "__main__":
    raise SystemExit(main())
