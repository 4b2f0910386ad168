"""Run the onnx package's own tests of quantised operators; docs/onnx.md says that all pass.

python test/support/onnx_nodes.py [--target cpu] [--target vulkan:lavapipe]     # runs all; exit status 1 when one fails
python test/support/onnx_nodes.py --only '^test_(?!cast)'                       # those of operators that are not casts

A test is one node with its inputs and outputs. All tests of the quantisation operators are run, and all casts from or
to a type of less than a byte, a one-byte float or a scale (e8m0).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

if str(Path(__file__).resolve().parents[2]) not in sys.path:  # as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import qmlir
from conformance.opened import opened
from qmlir.frontends.onnx.types import stored

TARGETS = ("cpu", "vulkan:lavapipe")
_SMALL = r"(INT4|INT2|FLOAT8|FLOAT4|E8M0)"
MEANT = re.compile(
    "test_(quantizelinear|dequantizelinear|dynamicquantizelinear|qlinearmatmul|qlinearconv|convinteger|matmulinteger"
    f"|cast_.*{_SMALL}|castlike_.*{_SMALL})"
)


@lru_cache(maxsize=1)
def every_case() -> dict[str, Any]:
    """All node tests of the onnx package, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {t.name: t for t in load_model_tests(kind="node")}


def cases() -> dict[str, Any]:
    """The node tests that are run, by name."""
    return {name: t for name, t in every_case().items() if MEANT.match(name)}


def array(value: Any) -> Any:
    """An input or output of a test as a numpy array. The onnx package gives codes of less than a byte
    ml_dtypes' types."""
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def check(case: Any, target: str) -> None:
    """Compile and run one test. Raises AssertionError for a wrong result, and the compiler's errors."""
    artifact = qmlir.compile(case.model, target=target)
    assert artifact.import_report is not None
    assert artifact.import_report["left"] == [], artifact.import_report["left"]
    compare(case, artifact)


def compare(case: Any, artifact: qmlir.Artifact) -> None:
    """Run a compiled test. Raises AssertionError for a wrong result.

    Integers and codes are compared exactly (fp4's two zeros are equal), floats within the test's own tolerance. 16-bit
    floats may differ by two units in the last place, because the ops of one kernel do not round to 16 bits in between.
    """
    program, signature = opened(artifact).main, artifact.functions["main"]
    for inputs, outputs in case.data_sets:
        arguments = [array(a) for a in inputs]
        results = program(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        for got, value, spec in zip(results, outputs, signature.outputs, strict=True):
            want = stored(array(value), spec.dtype)
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            if spec.dtype == "e2m1":
                got, want = (np.where(x & 15 == 8, 0, x & 15) for x in (got, want))
            if want.dtype.kind in "iub":
                np.testing.assert_array_equal(got, want)
            else:
                rtol = max(case.rtol, 2 * float(ml_dtypes.finfo(want.dtype).eps)) if want.itemsize == 2 else case.rtol
                np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=case.atol)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="only these targets")
    parser.add_argument("--only", default="", help="a regular expression of names")
    arguments = parser.parse_args()
    names = [n for n in sorted(cases()) if re.search(arguments.only, n)]
    failed = 0
    for target in arguments.target or TARGETS:
        passed = 0
        for name in names:
            start = time.perf_counter()
            try:
                check(cases()[name], target)
                passed += 1
            except Exception as e:
                print(f"{target} {name}: {e}", file=sys.stderr)
            print(f"{target} {name} {time.perf_counter() - start:.1f} s", flush=True)
        print(f"{target}: {passed} of {len(names)} passed")
        failed += len(names) - passed
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
