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

import qmlir  # noqa: E402
from qmlir import SparseSpec, SparseWeight, TensorSpec  # noqa: E402
from qmlir.checking import Tolerance  # noqa: E402
from qmlir.checking.compare import compare  # noqa: E402
from qmlir.emulation.backends import BACKENDS  # noqa: E402
from qmlir.runtime import inputs  # noqa: E402
from qmlir.targets import all_targets  # noqa: E402

RESULTS = HERE / "results.json"
TARGETS = tuple(t.spelling for t in all_targets() if t.backend in BACKENDS)
# Where the last bit of an activation decides about a code between two products, all that follows from it moves.
TOLERANCES = {"moe": Tolerance(relative=1e-3)}


def execute(form: Form, target: str) -> str:
    """`executed`, or what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            artifact = form.compile(target)
            if form.op == "program":  # evaluated op by op
                report = qmlir.check(artifact.source("import"), target=target, emulate=True)
                return "executed" if report.ok else f"differs: {report.text()}"
            return _against_reference(form, artifact)
        except qmlir.QmlirError as e:
            return f"{type(e).__name__}: {e}"


def _against_reference(form: Form, artifact: Any) -> str:
    given = form.build(Operands(form.name))
    program = qmlir.load(artifact, emulate=True)
    signature = program.main.signature
    if isinstance(given.get("weight"), SparseSpec):
        given["weight"] = weight = _sparse(given["weight"])
        by_name = {n: getattr(weight, n) if hasattr(weight, n) else _plain(spec) for n, spec in signature.inputs}
        arguments = list(by_name.values())
    else:
        arguments = inputs.make(signature, artifact.manifest.arguments.get("main"), seed=1)
        by_name = dict(zip((name for name, _ in signature.inputs), arguments, strict=True))
    filled = {name: by_name[name] if isinstance(value, TensorSpec) else value for name, value in given.items()}
    got, want = program.main(*arguments), getattr(qmlir.reference, form.op)(**filled)
    pairs = zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=False)
    for i, (x, y) in enumerate(pairs):
        found = compare(f"output {i}", np.asarray(x), np.asarray(y), TOLERANCES.get(form.op, Tolerance()))
        if not found.ok:
            return f"differs: output {i} by {found.max_error:.3g}"
    return "executed"


def _sparse(spec: SparseSpec) -> SparseWeight:
    """A weight with as many entries as a specification says."""
    rng = np.random.default_rng(2)
    dense = np.zeros(spec.shape[0] * spec.shape[1], np.int8)
    dense[rng.permutation(dense.size)[: spec.stored]] = rng.integers(1, 128, spec.stored)
    return SparseWeight.from_dense(dense.reshape(spec.shape), spec.format, rhs_transposed=spec.rhs_transposed)


def _plain(spec: TensorSpec) -> Any:
    rng = np.random.default_rng(3)
    shape = [int(s or 1) for s in spec.shape]
    return rng.integers(-128, 128, shape, np.int8) if spec.dtype == "i8" else rng.random(shape, np.float32) * 0.01


def read() -> dict[str, dict[str, str]]:
    """`{form: {target: what came of it}}`."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds this")
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all that are emulated")
    parser.add_argument("--all", action="store_true", help="execute again what results.json has")
    args = parser.parse_args()
    for form in FORMS:
        for target in args.target or TARGETS:
            if args.only not in form.name or (target in read().get(form.name, {}) and not args.all):
                continue
            start = time.monotonic()
            found = execute(form, target)
            results = read()  # another process may execute other targets
            results.setdefault(form.name, {})[target] = found
            print(f"{time.monotonic() - start:7.1f} s  {target}  {form.name}: {found}", flush=True)
            kept = {f.name: {t: results[f.name][t] for t in TARGETS if t in results[f.name]}
                    for f in FORMS if f.name in results}  # fmt: skip
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
