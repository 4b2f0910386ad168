"""Sizes that are divided by zero, in a separate process, which may crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qmlir
from conformance.opened import opened
from qmlir.compiler.stages import default_pipeline
from qmlir.errors import InputError
from qmlir.targets import resolve

PROGRAM = """
func.func @main(%x: tensor<?x12xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c60 = arith.constant 60 : index
  %one = arith.constant 1.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x12xf32>
  %each = arith.divui %c60, %n : index
  %e = tensor.empty(%each) : tensor<?xf32>
  %0 = linalg.fill ins(%one : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
CALL = """
import sys
import numpy as np
import qmlir
found = qmlir.load(sys.argv[1]).main(np.zeros((int(sys.argv[2]), 12), np.float32))
print(found.shape)
"""


def called(folder: Path, rows: int, left_out: str = "") -> subprocess.CompletedProcess[str]:
    source, file = folder / "sizes.mlir", folder / "sizes.vmfb"
    source.write_text(PROGRAM)
    steps = default_pipeline(resolve("cpu")).split(",")
    artifact = qmlir.compile(source, pipeline=",".join(s for s in steps if s != left_out), cache=False)
    artifact.save(file)
    return subprocess.run(
        [sys.executable, "-c", CALL, str(file), str(rows)], capture_output=True, text=True, check=False
    )


def test_a_size_that_is_divided_by_zero(tmp_path: Path) -> None:
    assert called(tmp_path, 4).stdout == "(15,)\n"
    ended = called(tmp_path, 0)
    assert ended.returncode == 1
    assert "a size is divided by zero" in ended.stderr


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_without_it(tmp_path: Path) -> None:
    assert called(tmp_path, 0, left_out="qmlir-guard-divisions").returncode >= 0, "a signal ended the process"


def test_a_batch_without_elements_and_an_inferred_size() -> None:
    """Regression: a call with an empty batch ended the process (SIGFPE)."""
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 9, opset_import: ["" : 18]> graph (float[N, 12] x) => (float y) {
        n = Shape<start = 0, end = 1>(x)
        rest = Constant<value = int64[2] {3, -1}>()
        shape = Concat<axis = 0>(n, rest)
        y = Reshape(x, shape)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    main = opened(qmlir.compile(onnx.shape_inference.infer_shapes(model))).main
    assert main(np.zeros((2, 12), np.float32)).shape == (2, 3, 4)
    with pytest.raises(InputError, match="a size is divided by zero"):
        main(np.zeros((0, 12), np.float32))
