"""Functions of constants are folded to the values that torch computes."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from iree.compiler.extras import fx_importer
from onnx import helper, numpy_helper

import qmlir
from conformance.opened import opened

FUNCTIONS = [
    lambda c: c < 0, lambda c: c > 0, lambda c: c >= 1, lambda c: c <= 0, lambda c: c == 0, lambda c: c != 1,
    lambda c: torch.remainder(c, 3), lambda c: torch.fmod(c, 3), lambda c: c // 3, lambda c: torch.remainder(c, -2),
    lambda c: torch.sign(c), lambda c: 3 - c, lambda c: c * 2 + 1, lambda c: torch.where(c < 0, -c, c),
    lambda c: torch.clamp(c, -1, 1), lambda c: c.to(torch.int32), lambda c: torch.maximum(c, torch.full_like(c, 1)),
    lambda c: c.reshape(2, -1).t() < 0, lambda c: (c < 0).any() | (c > 1).all(),
]  # fmt: skip
CONSTANTS = {
    "filled": lambda x, v, dtype: torch.full_like(x, v, dtype=dtype),
    "new": lambda x, v, dtype: x.new_zeros(64, dtype=dtype) + v,
    "few": lambda x, v, dtype: torch.tensor([v, 1, 0, v], dtype=dtype),
    "many": lambda x, v, dtype: torch.tensor([v, 1, 0, v] * 64, dtype=dtype),
}


class OfConstants(torch.nn.Module):
    def __init__(self, constant: Any, value: float, dtype: Any) -> None:
        super().__init__()
        self.constant, self.value, self.dtype = constant, value, dtype

    def forward(self, x: Any) -> Any:
        c = self.constant(x, self.value, self.dtype)
        return (*(f(c) for f in FUNCTIONS), x + 1)


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize(("value", "dtype"), [(0.7, torch.float32), (-0.7, torch.float32), (-7, torch.int64)])
@pytest.mark.parametrize("constant", CONSTANTS)
def test_functions_of_constants(constant: str, value: float, dtype: Any) -> None:
    """Regression: torch-mlir sometimes folded comparisons of a float with an integer wrong, and always negative
    remainders."""
    model, x = OfConstants(CONSTANTS[constant], value, dtype), torch.zeros(64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (x,))
    for got, want in zip(opened(qmlir.compile(program)).main(x), model(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.numpy())
        assert torch.as_tensor(got).dtype == want.dtype


class Masks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.masks = [torch.rand(64, generator=torch.Generator().manual_seed(i)) < 0.5 for i in range(16)]

    def forward(self, x: Any) -> Any:
        return tuple(torch.where(m, x, -x) for m in self.masks)


@pytest.mark.slow
def test_constants_of_bools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: sometimes a constant had another's value, because torch-mlir identifies constants by their addresses,
    even after they are freed."""
    model, x = Masks(), torch.linspace(1, 2, 64)
    track, known = fx_importer.RefTracker.track, list[Any]()

    def checked(self: Any, referrent: Any) -> Any:
        assert all(k() is not None for k in known), "a constant is gone"
        known.append(weakref.ref(referrent))
        return track(self, referrent)

    monkeypatch.setattr(fx_importer.RefTracker, "track", checked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (x,))
    for got, want in zip(opened(qmlir.compile(program, cache=False)).main(x), model(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.numpy())
    assert len(known) == len(model.masks)


@pytest.mark.slow
def test_the_sign_of_a_constant_in_onnx() -> None:
    values = {"a": 0.7, "b": -0.7, "c": 0.0}
    described = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [64]) for n in ("x", *values, "y")]
    nodes = [helper.make_node("Sign", [f"_{n}"], [n]) for n in values] + [helper.make_node("Sign", ["x"], ["y"])]
    constants = [numpy_helper.from_array(np.full(64, v, np.float32), f"_{n}") for n, v in values.items()]
    graph = helper.make_graph(nodes, "signs", described[:1], described[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    for got, want in zip(opened(qmlir.compile(model)).main(x), (1.0, -1.0, 0.0, np.sign(x)), strict=True):
        np.testing.assert_array_equal(got, np.broadcast_to(np.float32(want), 64))
