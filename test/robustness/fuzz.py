"""Feed surfaces (`surfaces.py`) with mutated inputs in a separate process, and count refusals.

    python test/robustness/fuzz.py [SURFACE...] --count 1000 --seed 7 --folder /tmp/fuzz

Prints one JSON object: for each surface, the number of inputs and how many were refused. A finding ends the run with
exit code 1 and prints the surface and the seed that repeat it. If the process itself dies, `step` in the folder has
them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from robustness.surfaces import SURFACES, QmlirError  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("surfaces", nargs="*", default=list(SURFACES))
    parser.add_argument("--count", type=int, default=1000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--longest", type=float, default=20.0, help="seconds that one input may take")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="qmlir-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    total = sum(SURFACES[name][1] for name in args.surfaces)
    told = {}
    for name in args.surfaces:
        opened, share = SURFACES[name]
        place = folder / name
        place.mkdir(exist_ok=True)
        feed = opened(place)
        count, refused, start = max(1, round(args.count * share / total)), 0, time.monotonic()
        for i in range(count):
            seed = f"{args.seed}:{name}:{i}"
            (folder / "step").write_text(seed)
            began = time.monotonic()
            try:
                feed(random.Random(seed))
            except QmlirError as e:
                refused += 1
                if not str(e).strip():
                    print(f"{seed}: refused without a word", file=sys.stderr)
                    return 1
            except BaseException:
                print(f"{name}: finding at --seed {args.seed}, input {i}", file=sys.stderr)
                traceback.print_exc()
                return 1
            if time.monotonic() - began > args.longest:
                print(f"{seed}: took {time.monotonic() - began:.1f} s", file=sys.stderr)
                return 1
        told[name] = {"inputs": count, "refused": refused, "seconds": round(time.monotonic() - start, 1)}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
