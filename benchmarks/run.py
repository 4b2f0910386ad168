"""The overhead benchmark as one table: `make bench`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import overhead


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to a file")
    args = parser.parse_args(argv)
    result = overhead.measure(args.quick)
    if args.json:
        args.json.write_text(json.dumps({"overhead": result}, indent=2) + "\n")
    call, imported, e = result["call"], result["import"], result["environment"]
    table = Table("what", "median", "p10", "p90", "limit", "", title=call["product"])
    for name, key in (("eager call", "eager_us"), ("bare runtime call", "bare_us")):
        s = call[key]
        table.add_row(name, *(f"{s[k]:.1f} us" for k in ("median", "p10", "p90")), "", "")
    for name, value, limit, part in (
        ("eager over bare", f"{call['overhead_us']:.1f} us", f"{call['limit_us']:g} us", call),
        ("import qmlir", f"{imported['median_s'] * 1e3:.1f} ms", f"{imported['limit_s'] * 1e3:g} ms", imported),
    ):
        table.add_row(name, value, "", "", limit, "[green]kept" if part["ok"] else "[red]missed")
    console = Console()
    console.print(table)
    console.print(
        f"{e['cpu']}, {e['cpus']} CPUs, {e['threads']} threads, {call['driver']}, load {e['load']:.2f}; "
        f"Python {e['python']}, IREE {e['iree-base-runtime']}, numpy {e['numpy']}",
        highlight=False,
    )
    return 0 if call["ok"] and imported["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
