"""Attention in ONNX graphs, as exporters write it, becomes one op with the results of onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session

# Key heads, query heads per key head, queries, keys, width of queries and keys, width of values.
H, G, M, K, D, N = 2, 3, 9, 7, 8, 16

PRODUCT = "s = MatMul(q, kt)\n p = Softmax<axis = -1>(s)\n y = MatMul(p, v)"
TRANSPOSED = "kt = Transpose<perm = [0, 1, 3, 2]>(k)\n" + PRODUCT
SCALES = """
    half = Constant<value = float {0.5}>()
    four = Constant<value = float[1] {4.0}>()
    kt = Transpose<perm = [0, 1, 3, 2]>(k)
    qs = Mul(q, half)
    ks = Mul(half, kt)
    s = MatMul(qs, ks)
    t = Div(s, four)
    u = Add(mask, t)
    p = Softmax<axis = 3>(u)
    y = MatMul(p, v)
"""
# As torch's exporter writes it: keys are transposed with batch and heads as one axis, and NaN weights are set to 0.
EXPORTED = f"""
    flat = Constant<value = int64[3] {{-1, {K}, {D}}}>()
    wide = Constant<value = int64[4] {{2, {H}, {D}, {K}}}>()
    zero = Constant<value = float {{0.0}}>()
    k3 = Reshape(k, flat)
    kt3 = Transpose<perm = [0, 2, 1]>(k3)
    kt = Reshape(kt3, wide)
    s = MatMul(q, kt)
    t = Add(s, mask)
    p = Softmax<axis = -1>(t)
    nan = IsNaN(p)
    w = Where(nan, zero, p)
    y = MatMul(w, v)
"""
# The same with dynamic sizes: shapes are computed, and the sizes of intermediate values have no names.
COMPUTED = f"""
    first = Constant<value = int64[1] {{0}}>()
    two = Constant<value = int64[1] {{2}}>()
    three = Constant<value = int64[1] {{3}}>()
    rest = Constant<value = int64[1] {{-1}}>()
    width = Constant<value = int64[1] {{{D}}}>()
    zero = Constant<value = float {{0.0}}>()
    sizes = Shape(k)
    batch = Slice(sizes, first, two)
    keys = Slice(sizes, two, three)
    flat = Concat<axis = 0>(rest, keys, width)
    wide = Concat<axis = 0>(batch, width, keys)
    k3 = Reshape(k, flat)
    kt3 = Transpose<perm = [0, 2, 1]>(k3)
    kt = Reshape(kt3, wide)
    s = MatMul(q, kt)
    t = Add(s, mask)
    p = Softmax<axis = -1>(t)
    nan = IsNaN(p)
    w = Where(nan, zero, p)
    y = MatMul(w, v)
"""
REPEATED = f"""
    axis = Constant<value = int64[1] {{2}}>()
    wide = Constant<value = int64[5] {{2, {H}, {G}, {K}, {D}}}>()
    wide_v = Constant<value = int64[5] {{2, {H}, {G}, {K}, {N}}}>()
    all = Constant<value = int64[4] {{2, {H * G}, {K}, {D}}}>()
    all_v = Constant<value = int64[4] {{2, {H * G}, {K}, {N}}}>()
    k5 = Unsqueeze(k, axis)
    v5 = Unsqueeze(v, axis)
    kx = Expand(k5, wide)
    vx = Expand(v5, wide_v)
    kr = Reshape(kx, all)
    vr = Reshape(vx, all_v)
    kt = Transpose<perm = [0, 1, 3, 2]>(kr)
    s = MatMul(q, kt)
    p = Softmax<axis = -1>(s)
    y = MatMul(p, vr)
"""
LAYERS = """
    qh = Transpose<perm = [0, 2, 1, 3]>(q)
    kt = Transpose<perm = [0, 2, 3, 1]>(k)
    vh = Transpose<perm = [0, 2, 1, 3]>(v)
    s = MatMul(qh, kt)
    p = Softmax<axis = -1>(s)
    o = MatMul(p, vh)
    y = Transpose<perm = [0, 2, 1, 3]>(o)
"""
QUERIES, KEYS, VALUES = f"float[2, {H}, {M}, {D}] q", f"float[2, {H}, {K}, {D}] k", f"float[2, {H}, {K}, {N}] v"
PLAIN = [QUERIES, KEYS, VALUES]
CASES: dict[str, tuple[list[str], str]] = {
    "plain": (PLAIN, TRANSPOSED),
    "no-batch": ([f"float[{M}, {D}] q", f"float[{D}, {K}] kt", f"float[{K}, {N}] v"], PRODUCT),
    "keys-in-columns": ([QUERIES, f"float[2, {H}, {D}, {K}] kt", VALUES], PRODUCT),
    "scales": ([*PLAIN, f"float[{M}, {K}] mask"], SCALES),
    "mask-of-keys": ([*PLAIN, f"float[2, 1, 1, {K}] mask"], SCALES),
    "exported": ([*PLAIN, f"float[2, 1, {M}, {K}] mask"], EXPORTED),
    "repeated-heads": ([f"float[2, {H * G}, {M}, {D}] q", KEYS, VALUES], REPEATED),
    "rows-of-heads": ([f"float[2, {M}, {H}, {D}] q", f"float[2, {K}, {H}, {D}] k", f"float[2, {K}, {H}, {N}] v"],
                      LAYERS),
    "dynamic": ([f"float[B, {H}, M, {D}] q", f"float[B, {H}, K, {D}] k", f"float[B, {H}, K, {N}] v"], TRANSPOSED),
    "dynamic-mask": ([f"float[B, {H}, M, {D}] q", f"float[B, {H}, K, {D}] k", f"float[B, {H}, K, {N}] v",
                      "float[B, 1, M, K] mask"], SCALES),
    "computed": ([f"float[B, {H}, M, {D}] q", f"float[B, {H}, K, {D}] k", f"float[B, {H}, K, {N}] v",
                  "float[B, 1, M, K] mask"], COMPUTED),
}  # fmt: skip
OTHERS: dict[str, tuple[list[str], str]] = {
    "weights-read-twice": (PLAIN, TRANSPOSED + "\n z = Exp(p)"),
    "other-axis": (PLAIN, TRANSPOSED.replace("axis = -1", "axis = 2")),
    "batches-that-broadcast": ([f"float[2, 1, {M}, {D}] q", KEYS, VALUES], TRANSPOSED),
    "mask-of-unknown-size": ([f"float[B, {H}, M, {D}] q", f"float[B, {H}, K, {D}] k", f"float[B, {H}, K, {N}] v",
                              "float[X] mask"], SCALES),
    "scaled-by-a-tensor": ([*PLAIN, f"float[{M}, {K}] mask"], SCALES.replace("Div(s, four)", "Div(s, mask)")),
}  # fmt: skip
SIZES = {"B": 2, "M": M, "K": K, "X": K}


def model(inputs: list[str], body: str) -> Any:
    outputs = "float y, float z" if " z = " in body else "float y"
    known = "<float[?, ?, ?] k3, float[?, ?, ?] kt3, float[?, ?, ?, ?] kt>" if body == COMPUTED else ""
    text = f'<ir_version: 9, opset_import: ["" : 18]> graph ({", ".join(inputs)}) => ({outputs}) {known} {{ {body} }}'
    made = parser.parse_model(text)
    for out in made.graph.output:
        out.type.tensor_type.ClearField("shape")
    return made if known else onnx.shape_inference.infer_shapes(made)


def arguments(made: Any, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = [[d.dim_value or SIZES[d.dim_param] for d in i.type.tensor_type.shape.dim] for i in made.graph.input]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def compare(made: Any, given: list[Any], artifact: Any) -> None:
    names = [i.name for i in made.graph.input]
    want = session(made, threads=1).run(None, dict(zip(names, given, strict=True)))
    got = opened(artifact).main(*given)
    for g, w in zip(got if isinstance(got, (list, tuple)) else [got], want, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_op(name: str) -> None:
    made = model(*CASES[name])
    artifact = qmlir.compile(made)
    text = artifact.source("import")
    assert text.count("iree_linalg_ext.attention ") == 1
    assert "matmul" not in text
    if name in ("plain", "exported", "repeated-heads", "rows-of-heads", "dynamic"):
        assert "linalg.transpose" not in text
    compare(made, arguments(made), artifact)


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize("name", OTHERS)
def test_other_forms_stay(name: str) -> None:
    made = model(*OTHERS[name])
    artifact = qmlir.compile(made)
    assert "iree_linalg_ext.attention" not in artifact.source("import")
    compare(made, arguments(made), artifact)


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64"])
def test_a_query_whose_keys_are_all_masked(target: str) -> None:
    """The result is 0, both with the attention kernel and with separate products."""
    made = model(*CASES["exported"])
    given = arguments(made)
    given[3][0, 0, 4] = -np.inf
    given[3][1, 0, :, 2:] = -np.inf
    artifact = qmlir.compile(made, target=target)
    assert not opened(artifact).main(*given)[0, :, 4].any()
    compare(made, given, artifact)


def test_a_mask_of_zeros_is_none() -> None:
    body = SCALES.replace("mask", "none") + f"\n none = Constant<value = float[1, {K}] {{{', '.join(['0.0'] * K)}}}>()"
    lines = [line for line in body.splitlines() if line.strip()]
    made = model(PLAIN, "\n".join([lines[-1], *lines[:-1]]))
    artifact = qmlir.compile(made)
    assert "1, 1, 1, 1, 0, 1" in artifact.source("import")
    compare(made, arguments(made), artifact)


def test_zeros_that_repeat_the_scores() -> None:
    """Regression: a mask of zeros was removed although it gives the result its shape."""
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        graph (float[1, 3, 8] q, float[1, 8, 5] k, float[1, 5, 4] v) => (float[2, 3, 4] y)
        <float[2, 1, 1] zeros = {0.0, 0.0}> {
            s = MatMul(q, k) u = Add(s, zeros) p = Softmax<axis = -1>(u) y = MatMul(p, v)
        }""")
    compare(made, arguments(made), qmlir.compile(made))


def test_a_scale_that_gives_the_scores_an_axis() -> None:
    """Regression: the result did not have the axis that the scale adds."""
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        graph (float[3, 8] q, float[8, 5] k, float[5, 4] v) => (float[1, 3, 4] y) <float[1, 1, 1] half = {0.5}> {
            s = MatMul(q, k) u = Mul(s, half) p = Softmax<axis = -1>(u) y = MatMul(p, v)
        }""")
    compare(made, arguments(made), qmlir.compile(made))
