"""Executes every form of the support matrix on emulated devices and compares with qmlir.reference.

python test/emulation/run.py                       # what results.json lacks
python test/emulation/run.py --all --only 'e4m3'   # again, rows whose name has the text
python test/emulation/run.py --target cuda:sm_80   # one target
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
for place in (HERE.parent, HERE.parents[1]):  # as a script
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

from support.forms import FORMS, Form, Operands  # noqa: E402
from support.run import TARGETS as COLUMNS  # noqa: E402

import qmlir  # noqa: E402
from qmlir import TensorSpec, inputs  # noqa: E402
from qmlir.checking import Tolerance  # noqa: E402
from qmlir.checking.compare import compare  # noqa: E402
from qmlir.emulation.backends import BACKENDS  # noqa: E402

RESULTS = HERE / "results.json"
TARGETS = tuple(t for t in COLUMNS if t.partition(":")[0] in BACKENDS)
# Whose operands the reference does not take as the compiler does: their program is evaluated, op by op.
_EVALUATED = ("program", "sparse_matmul")


def execute(form: Form, target: str) -> str:
    """`executed`, or what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            artifact = form.compile(target)
            if form.op in _EVALUATED:
                report = qmlir.check(artifact.source("import"), target=target, emulate=True)
                return "executed" if report.ok else f"differs: {report.text()}"
            return _against_reference(form, artifact)
        except qmlir.QmlirError as e:
            return f"{type(e).__name__}: {e}"


def _against_reference(form: Form, artifact: Any) -> str:
    given = form.build(Operands(form.name))
    program = qmlir.load(artifact, emulate=True)
    signature = program.main.signature
    arguments = inputs.make(signature, artifact.manifest.get("arguments", {}).get("main"), seed=1)
    by_name = dict(zip((name for name, _ in signature.inputs), arguments, strict=True))
    filled = {name: by_name[name] if isinstance(value, TensorSpec) else value for name, value in given.items()}
    got, want = program.main(*arguments), getattr(qmlir.reference, form.op)(**filled)
    pairs = zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=False)
    for i, (x, y) in enumerate(pairs):
        found = compare(f"output {i}", np.asarray(x), np.asarray(y), Tolerance())
        if not found.ok:
            return f"differs: output {i} by {found.max_error:.3g}"
    return "executed"


def read() -> dict[str, dict[str, str]]:
    """`{form: {target: what came of it}}`."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds this")
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all that are emulated")
    parser.add_argument("--all", action="store_true", help="execute again what results.json has")
    args = parser.parse_args()
    results = read()
    for form in FORMS:
        for target in args.target or TARGETS:
            if args.only not in form.name or (target in results.get(form.name, {}) and not args.all):
                continue
            start = time.monotonic()
            found = execute(form, target)
            results.setdefault(form.name, {})[target] = found
            print(f"{time.monotonic() - start:7.1f} s  {target}  {form.name}: {found}", flush=True)
            kept = {f.name: {t: results[f.name][t] for t in TARGETS if t in results[f.name]}
                    for f in FORMS if f.name in results}  # fmt: skip
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
