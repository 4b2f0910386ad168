"""Kernel bodies that are hidden from IREE's passes over host code."""

from __future__ import annotations

import numpy as np
import pytest

import qmlir
from qmlir.compiler import invocation
from qmlir.core.mlir import context, ir
from qmlir.kernels import hidden

PROGRAM = """
stream.executable private @product {
  builtin.module {
    func.func @product() {
      func.call @chunk() : () -> ()
      func.call @share() : () -> ()
      return
    }
    func.func private @chunk() attributes {no_inline} { return }
    func.func private @share() { return }
  }
}
"""


def test_only_what_is_not_inlined_is_hidden_and_comes_back() -> None:
    with context():
        module = ir.Module.parse(PROGRAM)
        before = str(module)
        taken = hidden.hide(module)
        assert list(taken) == [("product", "chunk")]
        assert "func.func private @chunk() attributes {no_inline}\n" in str(module)
        hidden.put_back(module, taken)
        assert str(module) == before


@pytest.mark.slow
def test_the_machine_code_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.ones((64, 32), np.int8)

    def assembly() -> str:
        spec = qmlir.TensorSpec((None, 64), "i8")
        artifact = qmlir.ops.scaled_matmul.compile(spec, weight, out_dtype="i32", target="cpu:znver4")
        lines = artifact.source("asm").splitlines()
        return "\n".join(line for line in lines if ".file" not in line and ".asciz" not in line)

    monkeypatch.setenv("QMLIR_VERIFY_IREE", "1")
    found = assembly()
    assert "vpdpbusd" in found
    monkeypatch.setattr(invocation, "hide", lambda module: {})
    assert assembly() == found
