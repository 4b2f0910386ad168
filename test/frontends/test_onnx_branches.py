"""An If whose condition follows from the graph, as torch's older exporter writes it for `squeeze`."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import qmlir
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError

# TWO: two Ifs, whose branches use the same inner names. NESTED: an If within another.
TWO = """
  s = Shape(x) n = Gather<axis = 0>(s, place) c = Equal(n, one)
  a = If(c) <then_branch = yes () => (float[] t) { t = ReduceSum<keepdims = 0>(x, places) },
             else_branch = no () => (float[] e) { e = Identity(x) }>
  d = Not(c)
  y = If(d) <then_branch = yes2 () => (float[] t2) <float u = {2.0}> { v = Mul(a, u) t2 = Neg(v) },
             else_branch = no2 () => (float[] e2) { v = Abs(a) e2 = Neg(v) }>
"""
NESTED = """
  s = Shape(x) n = Gather<axis = 0>(s, place) c = Equal(n, one)
  y = If(c) <then_branch = yes () => (float[] t) {
               k = Neg(x) t = If(c) <then_branch = deep () => (float[] p) { p = Abs(k) },
                                     else_branch = deeper () => (float[] q) { q = Neg(k) }> },
             else_branch = no () => (float[] e) { e = Identity(x) }>
"""


def program(body: str, size: str) -> str:
    constants = "int64 place = {1}, int64 one = {1}, int64[1] places = {1}"
    graph = f"graph (float[N, {size}, 4] x) => (float y) <{constants}> {{ {body} }}"
    return f'<ir_version: 9, opset_import: ["" : 18]> {graph}'


@pytest.mark.parametrize("size", ["1", "3"])
@pytest.mark.parametrize("body", [TWO, NESTED], ids=["two", "nested"])
def test_the_branch_that_is_taken(body: str, size: str) -> None:
    """Regression: the import failed with "If has a graph inside"."""
    model = parser.parse_model(program(body, size))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    main, peer = qmlir.load(qmlir.compile(model)).main, session(model, threads=1)
    for count in (1, 3):
        x = np.random.default_rng(count).standard_normal((count, int(size), 4)).astype(np.float32)
        np.testing.assert_array_equal(main(x), peer.run(None, {"x": x})[0])


def test_a_condition_that_is_computed_is_refused() -> None:
    with pytest.raises(FrontEndError, match="except an If whose condition follows from constants and static sizes"):
        qmlir.compile(parser.parse_model(program(TWO, "S")))
