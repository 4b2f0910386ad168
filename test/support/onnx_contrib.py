"""Models of one operator that onnxruntime's optimisers add, and their results by onnxruntime and by qmlir."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session

B, S, L, P, N, KEYS, D, WIDE = 2, 5, 7, 6, 6, 2, 16, 24  # batch, queries, keys, past, heads, key heads, widths
H = N * D
MICROSOFT = "com.microsoft"
Names = Mapping[int, Sequence[str]]  # of the dynamic sizes of each input, "" for a static one


class Random:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def below(self, most: int, *shape: int) -> Any:
        return self.rng.integers(0, most, shape).astype(np.int32)


f = Random()


def scalar(value: float, dtype: Any = np.int32) -> Any:
    return np.asarray(value, dtype)


Case = tuple[str, list[Any], dict[str, Any]]


def case(op: str, *inputs: Any, **more: Any) -> Case:
    return op, list(inputs), more


def model(
    op: str, inputs: Sequence[Any], *, outs: Sequence[int] = (0,), opset: int = 17, domain: str = MICROSOFT,
    names: Names | None = None, constant: Sequence[int] = (), **attributes: Any,
) -> Any:  # fmt: skip
    """Return a model of one node. `outs`: the results to compute, `constant`: the inputs that are constants."""
    outputs = [f"o{i}" if i in outs else "" for i in range(max(outs) + 1)]
    given = [f"i{i}" if a is not None else "" for i, a in enumerate(inputs)]
    node = helper.make_node(op, given, outputs, name=op, domain=domain, **attributes)

    def shape(i: int, a: Any) -> list[Any]:
        said = [*(names or {}).get(i, ()), *[""] * a.ndim]
        return [name or size for name, size in zip(said, a.shape, strict=False)]

    there = [(i, a) for i, a in enumerate(inputs) if a is not None]
    graph = helper.make_graph(
        [node], "graph",
        [helper.make_tensor_value_info(f"i{i}", helper.np_dtype_to_tensor_dtype(a.dtype), shape(i, a))
         for i, a in there if i not in constant],
        [helper.make_empty_tensor_value_info(o) for o in outputs if o],
        [numpy_helper.from_array(a, f"i{i}") for i, a in there if i in constant],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def results(op: str, inputs: list[Any], more: dict[str, Any], target: str = "cpu") -> tuple[list[Any], list[Any]]:
    """Return the results of qmlir and those of onnxruntime."""
    made = model(op, inputs, **more)
    feed = {f"i{i}": a for i, a in enumerate(inputs) if a is not None and i not in more.get("constant", ())}
    want = session(made, threads=1).run(None, feed)
    got = opened(qmlir.compile(made, target=target)).main(*feed.values())
    return list(got) if isinstance(got, (list, tuple)) else [got], want


def close(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5 * max(1.0, float(np.abs(want).max(initial=0))))
