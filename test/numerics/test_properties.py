"""Hypothesis: packing, quantisation, and random schemes and shapes of scaled_matmul."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import qmlir
from qmlir.dialect.dtypes import DTYPES

R = qmlir.reference
SUB_BYTE = ("i4", "u4", "i2", "u2", "i1", "u1", "nf4", "e2m1")


@st.composite
def packed(draw: Any) -> tuple[Any, str, str]:
    """Codes of a sub-byte type, any shape (odd lengths and empty axes too), and an order."""
    dtype = draw(st.sampled_from(SUB_BYTE))
    shape = (draw(st.integers(0, 3)), draw(st.integers(0, 40)))
    d = DTYPES[dtype]
    lo, hi = (d.lo, d.hi) if d.is_int and dtype != "i1" else (0, (1 << d.bits) - 1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    codes = rng.integers(lo, hi + 1, shape).astype(np.int8 if lo < 0 else np.uint8)
    return codes, dtype, draw(st.sampled_from(("low_first", "high_first", "interleaved")))


@given(packed())
@settings(max_examples=300)
def test_unpack_undoes_pack(case: tuple[Any, str, str]) -> None:
    codes, dtype, order = case
    back = R.unpack(R.pack(codes, dtype, order), dtype, order, codes.shape[-1])
    assert back.dtype == codes.dtype
    assert np.array_equal(back, codes)


@given(packed())
@settings(max_examples=3)
def test_compiled_unpack(case: tuple[Any, str, str]) -> None:
    codes, dtype, order = case
    given_bytes = R.pack(codes, dtype, order)
    actual = qmlir.ops.unpack(given_bytes, dtype=dtype, packing=order, length=codes.shape[-1])
    assert np.array_equal(actual, codes)


@pytest.mark.parametrize("order", ["low_first", "high_first", "interleaved"])
@pytest.mark.parametrize("shape", [(0, 1), (2, 0), (0, 0)])
def test_unpack_of_nothing(shape: tuple[int, int], order: str) -> None:
    given_bytes = R.pack(np.zeros(shape, np.int8), "i4", order)
    assert qmlir.ops.unpack(given_bytes, dtype="i4", packing=order, length=shape[-1]).shape == shape


@given(st.integers(0, 2**32 - 1), st.sampled_from(("i8", "u8", "i4", "u4")), st.booleans())
@settings(max_examples=100)
def test_quantize_undoes_dequant(seed: int, dtype: str, zero: bool) -> None:
    rng = np.random.default_rng(seed)
    d = DTYPES[dtype]
    q = rng.integers(d.lo, d.hi + 1, (5, 8)).astype(d.numpy)
    scale = (2.0 ** rng.integers(-20, 20, (5, 1))).astype(np.float32)
    z = rng.integers(d.lo, d.hi + 1, (5, 1)).astype(np.int32) if zero else None
    x = R.dequantize(q, scale, z, dtype=dtype)
    assert np.array_equal(R.quantize(x, scale, z, out_dtype=dtype), q)


@st.composite
def products(draw: Any) -> dict[str, Any]:
    """A random scheme and shape of scaled_matmul with integer codes on both sides."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = draw(st.integers(0, 40)), draw(st.integers(1, 40))
    group = draw(st.sampled_from((8, 16, 24)))
    k = group * draw(st.integers(1, 5))
    transposed = draw(st.booleans())
    kind = draw(st.sampled_from(("i8", "i4", "u4", "i2")))
    grouped = draw(st.booleans())
    d = DTYPES[kind]
    w = rng.integers(d.lo, d.hi + 1, (n, k)).astype(d.numpy)
    scale = (rng.random((n, k // group if grouped else 1)) * 0.02 + 1e-3).astype(np.float32)
    kw: dict[str, Any] = {"lhs_scale": (rng.random((m, 1)) * 0.02 + 1e-3).astype(np.float32), "rhs_dtype": kind}
    if draw(st.booleans()):
        kw["lhs_zero_point"] = rng.integers(-40, 40, (m, 1)).astype(np.int32)
    if draw(st.booleans()):
        kw["rhs_zero_point"] = rng.integers(d.lo, d.hi + 1, scale.shape).astype(np.int32)
    if draw(st.booleans()):
        kw["bias"] = rng.standard_normal(n).astype(np.float32)
    if transposed and kind != "i8" and draw(st.booleans()):
        kw["rhs_packing"] = draw(st.sampled_from(("low_first", "high_first")))
        w = R.pack(w, kind, kw["rhs_packing"])
    if transposed:
        kw |= {"rhs": w, "rhs_scale": scale, "rhs_transposed": True}
    else:
        kw |= {"rhs": np.ascontiguousarray(w.T), "rhs_scale": np.ascontiguousarray(scale.T)}
        if "rhs_zero_point" in kw:
            kw["rhs_zero_point"] = np.ascontiguousarray(kw["rhs_zero_point"].T)
    return {"lhs": rng.integers(-128, 128, (m, k)).astype(np.int8), **kw}


def _close_to_float64(kw: dict[str, Any], terms: Any, near: Any) -> None:
    actual = qmlir.ops.scaled_matmul(**kw)
    near(actual, R.scaled_matmul(**kw), terms(kw["lhs"], kw["rhs"], kw))


@given(kw=products())
@settings(max_examples=4)
def test_random_products(kw: dict[str, Any], terms: Any, near: Any) -> None:
    _close_to_float64(kw, terms, near)


@pytest.mark.slow
@pytest.mark.long
@given(kw=products())
@settings(max_examples=250, derandomize=False)
def test_many_random_products(kw: dict[str, Any], terms: Any, near: Any) -> None:
    _close_to_float64(kw, terms, near)


# ------------------------------------------------------------------------------------- convolution, directly


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    """A random geometry of conv2d_q on codes: grouped or depthwise, strided, dilated, with a padding for each side."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    c = groups * draw(st.integers(1, 5))
    f = groups * draw(st.integers(1, 4))
    kh, kw = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    geometry = {
        "strides": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "dilations": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "padding": tuple(draw(st.integers(0, 2)) for _ in range(4)),
    }
    h, w = draw(st.integers(5, 9)), draw(st.integers(5, 9))
    case = {"input": rng.integers(-128, 128, (draw(st.integers(1, 2)), h, w, c)).astype(np.int8),
           "weight": rng.integers(-128, 128, (f, kh, kw, c // groups)).astype(np.int8),
           "groups": groups, "out_dtype": "i32", **geometry}  # fmt: skip
    if draw(st.booleans()):
        case["input_zero_point"] = np.int32(draw(st.integers(-20, 20)))
    return case


def _direct_convolution(kw: dict[str, Any]) -> Any:
    """The definition of the convolution, one output element at a time."""
    x = kw["input"].astype(np.int64) - int(kw.get("input_zero_point", 0))
    weight = kw["weight"].astype(np.int64)
    top, left, bottom, right = kw["padding"]
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    (sy, sx), (dy, dx) = kw["strides"], kw["dilations"]
    f, kh, kw_, per = weight.shape
    rows = (x.shape[1] - dy * (kh - 1) - 1) // sy + 1
    columns = (x.shape[2] - dx * (kw_ - 1) - 1) // sx + 1
    out = np.zeros((x.shape[0], rows, columns, f), np.int64)
    for o in range(f):
        group = o // (f // kw["groups"])
        channels = slice(group * per, (group + 1) * per)
        for i in range(rows):
            for j in range(columns):
                window = x[:, i * sy : i * sy + dy * kh : dy, j * sx : j * sx + dx * kw_ : dx, channels]
                out[:, i, j, o] = (window[:, :kh, :kw_] * weight[o]).sum((1, 2, 3))
    return out


@given(kw=convolutions())
@settings(max_examples=3)
def test_random_convolutions(kw: dict[str, Any]) -> None:
    assert np.array_equal(qmlir.ops.conv2d_q(**kw), _direct_convolution(kw))


def test_groups_less_a_zero_point() -> None:
    """The weights are arguments, so that the program sums them; the three filters of a group are padded to a tile."""
    rng = np.random.default_rng(0)
    x, weight = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 7, 6, 4), (6, 1, 1, 2)))
    kw = {"input": x, "weight": weight, "groups": 2, "input_zero_point": np.int32(3), "out_dtype": "i32",
          "strides": (1, 1), "dilations": (1, 1), "padding": (0, 0, 0, 0)}  # fmt: skip
    assert np.array_equal(qmlir.ops.conv2d_q(**kw), _direct_convolution(kw))


@pytest.mark.slow
@pytest.mark.long
@given(kw=convolutions())
@settings(max_examples=125, derandomize=False)
def test_many_random_convolutions(kw: dict[str, Any]) -> None:
    assert np.array_equal(qmlir.ops.conv2d_q(**kw), _direct_convolution(kw))


# ------------------------------------------------------------------------------- groups, as a loop of products


@st.composite
def groupings(draw: Any) -> dict[str, Any]:
    """Rows sorted by group, or with ids in any order; some groups are empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups, rows = draw(st.integers(1, 9)), draw(st.integers(0, 60))
    n, k = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    owner = rng.integers(0, groups, (rows, draw(st.integers(1, 3))))
    lhs = rng.integers(-128, 128, (rows, k)).astype(np.int8)
    rhs = rng.integers(-128, 128, (groups, k, n)).astype(np.int8)
    kw: dict[str, Any] = {"lhs": lhs, "rhs": rhs, "out_dtype": "i32"}
    if draw(st.booleans()):
        kw["lhs_zero_point"] = rng.integers(-20, 20, (rows, 1)).astype(np.int32)
    if draw(st.booleans()):
        return kw | {"expert_ids": owner.astype(np.int32)}
    return kw | {"group_sizes": np.bincount(owner[:, 0], minlength=groups).astype(np.int32)}


def _loop_of_products(kw: dict[str, Any]) -> Any:
    x = kw["lhs"].astype(np.int64) - kw.get("lhs_zero_point", 0)
    weight = kw["rhs"].astype(np.int64)
    if "group_sizes" in kw:
        owners = np.repeat(np.arange(len(weight)), kw["group_sizes"])[:, None]
    else:
        owners = kw["expert_ids"]
    out = np.zeros((*owners.shape, weight.shape[2]), np.int64)
    for (row, slot), owner in np.ndenumerate(owners):
        out[row, slot] = x[row] @ weight[owner]
    return out[:, 0] if "group_sizes" in kw else out


@given(kw=groupings())
@settings(max_examples=2)
def test_random_groups(kw: dict[str, Any]) -> None:
    assert np.array_equal(qmlir.ops.grouped_matmul(**kw), _loop_of_products(kw))


@pytest.mark.parametrize("how", ["sizes", "ids"])
def test_groups_of_one_row_and_one_column(how: str) -> None:
    """Regression: the compiler ended the process if rows were gathered from a single one."""
    rng = np.random.default_rng(3)
    kw = {"lhs": rng.integers(-128, 128, (1, 53)).astype(np.int8), "out_dtype": "i32",
          "rhs": rng.integers(-128, 128, (7, 53, 1)).astype(np.int8)}  # fmt: skip
    if how == "ids":
        kw["expert_ids"] = np.array([[5, 4, 2]], np.int32)
    else:
        kw["group_sizes"] = np.eye(7, dtype=np.int32)[4]
    assert np.array_equal(qmlir.ops.grouped_matmul(**kw), _loop_of_products(kw))


@pytest.mark.slow
@pytest.mark.long
@given(kw=groupings())
@settings(max_examples=75, derandomize=False)
def test_many_random_groups(kw: dict[str, Any]) -> None:
    assert np.array_equal(qmlir.ops.grouped_matmul(**kw), _loop_of_products(kw))


# ------------------------------------------------------------------------------------- the same on two targets


def _same_on_both(kw: dict[str, Any], other: str) -> None:
    """Integer results, such as the requantised codes of a random product, are bit-exact on every target."""
    kw = {**kw, "out_dtype": "i8", "out_scale": np.float32(0.7)}
    if kw["lhs"].shape[0]:
        assert np.array_equal(qmlir.ops.scaled_matmul(**kw), qmlir.ops.scaled_matmul(**kw, target=other))


@given(kw=products())
@settings(max_examples=3)
def test_targets_agree(kw: dict[str, Any], lavapipe: str) -> None:
    _same_on_both(kw, lavapipe)


@pytest.mark.slow
@pytest.mark.long
@given(kw=products())
@settings(max_examples=50, derandomize=False)
def test_targets_agree_on_many(kw: dict[str, Any], lavapipe: str) -> None:
    _same_on_both(kw, lavapipe)


@pytest.mark.slow
@given(kw=groupings())
@settings(max_examples=30, derandomize=False)
def test_targets_agree_on_groups(kw: dict[str, Any], lavapipe: str) -> None:
    if kw["lhs"].shape[0]:
        assert np.array_equal(qmlir.ops.grouped_matmul(**kw), qmlir.ops.grouped_matmul(**kw, target=lavapipe))
