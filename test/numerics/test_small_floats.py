"""One-byte floats: every code, and products, on every target that runs here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qmlir
from qmlir.dialect.dtypes import DTYPES

pytestmark = pytest.mark.sweep(fast=6, slow=40)

R = qmlir.reference
FORMATS = ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")


@pytest.mark.parametrize("name", FORMATS)
def test_every_code(name: str, target: str, same: Any) -> None:
    codes = np.arange(256, dtype=np.uint8).view(DTYPES[name].numpy).reshape(4, 64)
    scale = np.float32(2.0)
    same(qmlir.ops.dequantize(codes, scale, target=target), R.dequantize(codes, scale))


def test_every_scale_of_one_exponent(target: str, same: Any) -> None:
    """e8m0: 2^-126 to 2^127, and NaN. 2^-127 is subnormal in f32, and devices flush it to zero."""
    scale = np.arange(256, dtype=np.uint8).view(DTYPES["e8m0"].numpy).reshape(256, 1)
    codes = np.ones((256, 4), np.int8)
    same(qmlir.ops.dequantize(codes, scale, target=target)[1:], R.dequantize(codes, scale)[1:])


def _codes(data: Any, name: str, *shape: int) -> Any:
    """Small integers over the whole format: products and sums are exact in f32."""
    return data.rng.integers(-4, 5, shape).astype(np.float32).astype(DTYPES[name].numpy)


# lavapipe compiles each program a second time when it loads it: one pair of formats there is enough for the fast tier.
PAIRS = [
    pytest.param(lhs, rhs, on, marks=pytest.mark.slow if on != "cpu" and (lhs, rhs) != ("e4m3", "e5m2") else ())
    for lhs, rhs in (*((f, f) for f in FORMATS), ("e4m3", "e5m2"), ("e5m2", "e4m3fnuz"))
    for on in ("cpu", "vulkan:lavapipe")
]


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize(("lhs", "rhs", "on"), PAIRS)
def test_products(lhs: str, rhs: str, on: str, request: pytest.FixtureRequest, data: Any, same: Any) -> None:
    target = on if on == "cpu" else request.getfixturevalue("lavapipe")
    kw = {"lhs": _codes(data, lhs, 9, 64), "rhs": _codes(data, rhs, 11, 64), "rhs_transposed": True,
          "lhs_scale": data.scales(9, 1), "rhs_scale": data.scales(11, 1)}  # fmt: skip
    same(qmlir.ops.scaled_matmul(**kw, target=target), R.scaled_matmul(**kw))


@pytest.mark.parametrize("integer", ["i8", "i4"])
def test_integers_times_floats(integer: str, target: str, data: Any, same: Any) -> None:
    """Integer codes are multiplied as f16, which represents them exactly."""
    kw = {"lhs": data.codes(9, 64), "rhs": _codes(data, "e4m3", 11, 64), "rhs_transposed": True,
          "lhs_scale": np.float32(0.5), "rhs_scale": data.scales(11, 1)}  # fmt: skip
    if integer == "i4":
        kw |= {"lhs": data.codes(9, 64, dtype="i4"), "lhs_dtype": "i4"}
    same(qmlir.ops.scaled_matmul(**kw, target=target), R.scaled_matmul(**kw))


@pytest.mark.parametrize("other", ["e2m1", "i8"])
def test_fp4_in_groups(other: str, target: str, data: Any, same: Any) -> None:
    """Microscaling: e2m1 times e2m1 or integers, both as f16; the scales are powers of two, so that sums are exact."""
    e8m0 = DTYPES["e8m0"].numpy
    kw = {"lhs": data.rng.integers(0, 16, (5, 64)).astype(np.int8), "lhs_dtype": "e2m1",
          "rhs": R.pack(data.rng.integers(0, 16, (7, 64)).astype(np.uint8), "e2m1"), "rhs_dtype": "e2m1",
          "rhs_packing": "low_first", "rhs_transposed": True,
          "lhs_scale": (2.0 ** data.rng.integers(-3, 3, (5, 2))).astype(np.float32).astype(e8m0),
          "rhs_scale": (2.0 ** data.rng.integers(-3, 3, (7, 2))).astype(np.float32).astype(e8m0)}  # fmt: skip
    if other == "i8":
        kw |= {"lhs": data.codes(5, 64), "lhs_dtype": "i8"}
    same(qmlir.ops.scaled_matmul(**kw, target=target), R.scaled_matmul(**kw))


def test_an_integer_zero_point_beside_floats(target: str, data: Any, same: Any) -> None:
    """f16 cannot represent every difference of a code and its zero point."""
    kw = {"lhs": data.codes(5, 32), "rhs": _codes(data, "e4m3", 7, 32), "rhs_transposed": True,
          "lhs_scale": np.float32(0.5), "lhs_zero_point": np.int32(5001)}  # fmt: skip
    same(qmlir.ops.scaled_matmul(**kw, target=target), R.scaled_matmul(**kw))
