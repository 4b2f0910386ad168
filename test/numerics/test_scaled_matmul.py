"""scaled_matmul against the reference: shapes x schemes, on every target that runs here.

A program is compiled once with a dynamic M and called with each M of `ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.cover import diagonal

import qmlir
from qmlir import TensorSpec
from qmlir.dialect.dtypes import from_numpy

pytestmark = pytest.mark.sweep(fast=6, slow=40)

ROWS = (0, 1, 2, 3, 17, 31, 33, 128)
R = qmlir.reference

# name -> (operands and attributes for given M, N, K). K-group schemes need K to be a multiple of the group.
Scheme = Callable[[Any, int, int, int], dict[str, Any]]


def _w8a8(**extra: Any) -> Scheme:
    return lambda d, m, n, k: {"lhs": d.codes(m, k), "rhs": d.codes(k, n), **extra}


def _per_token(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    return {"lhs": d.codes(m, k), "rhs": d.codes(k, n), "lhs_scale": d.scales(m, 1), "rhs_scale": d.scales(1, n)}


def _asymmetric(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    return {**_per_token(d, m, n, k), "lhs_zero_point": d.zeros(m, 1), "rhs_zero_point": d.zeros(1, n),
            "bias": d.floats(n) * 100, "out_dtype": "bf16"}  # fmt: skip


def _u8(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
    return {"lhs": d.codes(m, k, dtype="u8"), "rhs": d.codes(n, k), "rhs_transposed": True, "lhs_scale": 0.02,
            "rhs_scale": d.scales(n, 1), "lhs_zero_point": np.uint8(131), "bias": d.floats(n), "activation": "relu",
            "out_dtype": "f16"}  # fmt: skip


def _requantised(rounding: str, out: str) -> Scheme:
    def make(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
        bias = d.rng.integers(-3000, 3000, n).astype(np.int32)
        return {"lhs": d.codes(m, k), "rhs": d.codes(k, n), "lhs_scale": 0.01, "rhs_scale": d.scales(1, n),
                "lhs_zero_point": np.int8(-7), "bias": bias, "bias_stage": "acc", "activation": "clamp(-90.0,100.5)",
                "out_dtype": out, "out_scale": 0.9, "out_zero_point": 11, "rounding": rounding}  # fmt: skip

    return make


def _w4a8(packing: str, dtype: str, group: int, **zero: Any) -> Scheme:
    def make(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
        kw = {"lhs": d.codes(m, k), "rhs": R.pack(d.codes(n, k, dtype=dtype), dtype, packing), "rhs_dtype": dtype,
              "rhs_packing": packing, "rhs_transposed": True, "lhs_scale": d.scales(m, 1),
              "rhs_scale": d.scales(n, max(k // group, 1) if group else 1)}  # fmt: skip
        if zero.get("lhs"):
            kw["lhs_zero_point"] = d.zeros(m, 1)
        if zero.get("rhs"):
            kw["rhs_zero_point"] = d.zeros(*kw["rhs_scale"].shape, lo=0, hi=16)
        return kw

    return make


def _weight_only(lhs: Any, dtype: str, group: int, out: str) -> Scheme:
    def make(d: Any, m: int, n: int, k: int) -> dict[str, Any]:
        scale = d.scales(n, max(k // group, 1) if group else 1)
        kw = {"lhs": d.floats(m, k).astype(lhs), "rhs": d.codes(n, k, dtype=dtype), "rhs_transposed": True,
              "rhs_scale": scale, "out_dtype": out, "rhs_dtype": dtype}  # fmt: skip
        if dtype == "i4":
            kw |= {"rhs": R.pack(kw["rhs"], dtype, "low_first"), "rhs_packing": "low_first"}
        return kw

    return make


EXACT: dict[str, Scheme] = {
    "raw": _w8a8(out_dtype="i32"),
    "tensor": _w8a8(lhs_scale=0.02, rhs_scale=0.03),
    "per_token": _per_token,
    "asymmetric": _asymmetric,
    "u8_relu_f16": _u8,
    "requant_half_even": _requantised("half_even", "i8"),
    "requant_half_away": _requantised("half_away", "i8"),
    "requant_trunc_u8": _requantised("trunc", "u8"),
    "w4a8_channel": _w4a8("low_first", "i4", 0),
}
GROUPED: dict[str, Scheme] = {
    "w4a8_g16": _w4a8("low_first", "i4", 16, lhs=True),
    "w4a8_g32_high": _w4a8("high_first", "u4", 32, rhs=True, lhs=True),
    "w4a8_gK": _w4a8("low_first", "i4", 4096),
}
FLOAT: dict[str, Scheme] = {
    "w8a32": _weight_only(np.float32, "i8", 0, "f32"),
    "w4a16_g32": _weight_only(np.float16, "i4", 32, "f16"),
    "w4a32_g64": _weight_only(np.float32, "i4", 64, "f32"),
}
SHAPES = ((33, 70), (96, 64), (1, 128))  # N, K
GROUPED_SHAPES = ((33, 64), (128, 192))


def compiled(target: str, kw: dict[str, Any], dynamic: bool) -> Any:
    """A program whose per-row arguments have a dynamic M."""
    m = kw["lhs"].shape[0]
    specs: dict[str, Any] = {}
    for name, value in kw.items():
        if isinstance(value, (str, bool)) or name == "clamp":
            specs[name] = value
            continue
        number = np.int32 if isinstance(value, int) else np.float32 if isinstance(value, float) else None
        array = np.asarray(value, number)
        per_row = dynamic and name in ("lhs", "lhs_scale", "lhs_zero_point") and array.ndim == 2
        assert not per_row or array.shape[0] == m
        specs[name] = TensorSpec((None, *array.shape[1:]) if per_row else array.shape, from_numpy(array.dtype))
    return qmlir.load(qmlir.ops.scaled_matmul.compile(target=target, **specs)).main


def call(function: Any, kw: dict[str, Any]) -> Any:
    arguments = []
    for name, spec in function.signature.inputs:
        arguments.append(np.asarray(kw[name], dtype=None if isinstance(kw[name], np.ndarray) else _number(spec.dtype)))
    return function(*arguments)


def _number(dtype: str) -> Any:
    return {"f32": np.float32, "i32": np.int32, "u8": np.uint8, "i8": np.int8}[dtype]


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize(("name", "n", "k"), diagonal(list(EXACT), SHAPES))
def test_exact(name: str, n: int, k: int, target: str, data: Any, same: Any) -> None:
    function = compiled(target, EXACT[name](data, 4, n, k), dynamic=True)
    for m in ROWS:
        kw = EXACT[name](data, m, n, k)
        same(call(function, kw), R.scaled_matmul(**kw))


@pytest.mark.parametrize(("name", "n", "k"), diagonal(list(GROUPED), GROUPED_SHAPES))
def test_groups_along_k(name: str, n: int, k: int, target: str, data: Any, near: Any, terms: Any) -> None:
    function = compiled(target, GROUPED[name](data, 4, n, k), dynamic=True)
    for m in ROWS:
        kw = GROUPED[name](data, m, n, k)
        near(call(function, kw), R.scaled_matmul(**{**kw, "out_dtype": "f32"}), terms(kw["lhs"], kw["rhs"], kw))


@pytest.mark.parametrize(("name", "n", "k"), diagonal(list(FLOAT), GROUPED_SHAPES))
def test_weight_only(name: str, n: int, k: int, target: str, data: Any, near: Any, terms: Any) -> None:
    function = compiled(target, FLOAT[name](data, 4, n, k), dynamic=True)
    for m in ROWS:
        kw = FLOAT[name](data, m, n, k)
        near(call(function, kw), R.scaled_matmul(**{**kw, "out_dtype": "f32"}), terms(kw["lhs"], kw["rhs"], kw))


@pytest.mark.parametrize(("m", "name"), diagonal([0, 1, 17, 128], ["per_token", "requant_half_even"]))
def test_static_rows(name: str, m: int, target: str, data: Any, same: Any) -> None:
    kw = EXACT[name](data, m, 40, 96)
    same(call(compiled(target, kw, dynamic=False), kw), R.scaled_matmul(**kw))


def test_large_k_and_n(target: str, data: Any, same: Any) -> None:
    kw = _per_token(data, 5, 1031, 4099)
    same(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw))


def test_batched(target: str, data: Any, same: Any) -> None:
    kw = {"lhs": data.codes(3, 16, 128), "rhs": data.codes(3, 128, 64), "lhs_scale": data.scales(3, 16, 1),
          "rhs_scale": data.scales(3, 1, 64)}  # fmt: skip
    same(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw))


def test_both_transposed(target: str, data: Any, same: Any) -> None:
    kw = {"lhs": data.codes(96, 17), "rhs": data.codes(33, 96), "lhs_transposed": True, "rhs_transposed": True,
          "lhs_scale": data.scales(1, 17), "rhs_scale": data.scales(33, 1)}  # fmt: skip
    same(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw))


def test_blocks_in_two_axes(target: str, data: Any, near: Any, terms: Any) -> None:
    """Blocks of 1x128 and 128x128. Regression: a batched [G, K, N] product was wrong on Vulkan."""
    kw = {"lhs": data.codes(17, 256), "rhs": data.codes(256, 128), "lhs_scale": data.scales(17, 2),
          "rhs_scale": data.scales(2, 1)}  # fmt: skip
    near(qmlir.ops.scaled_matmul(target=target, **kw), R.scaled_matmul(**kw), terms(kw["lhs"], kw["rhs"], kw))


@pytest.mark.parametrize("name", ["asymmetric", "u8_relu_f16", "requant_half_away", "w4a8_channel"])
def test_constant_weights_fold_to_the_same_result(name: str, target: str, data: Any, same: Any) -> None:
    kw = EXACT[name](data, 9, 33, 64)
    constants = {k: v for k, v in kw.items() if k.startswith(("rhs", "bias", "out_")) or isinstance(v, (str, float))}
    free = {k: np.asarray(v) for k, v in kw.items() if k not in constants}
    specs = {k: TensorSpec(v.shape, from_numpy(v.dtype)) for k, v in free.items()}
    program = qmlir.load(qmlir.ops.scaled_matmul.compile(target=target, **specs, **constants))
    order = [n for n, _ in program.main.signature.inputs]
    same(program.main(*[free[n] for n in order]), R.scaled_matmul(**kw))
