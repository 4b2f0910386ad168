"""Ten exact results from five systems. data/golden.json has the recipe of the data and the sha256 of each result's
bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir
from conformance.stream import Stream

pytestmark = pytest.mark.sweep(fast=3, slow=40)

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())
F = np.float32


def _gemm(rounding: str) -> Callable[[Any], Any]:
    def run(api: Any) -> Any:
        s = Stream()
        a, b = s((1024, 1024), -128, 127).astype(np.int8), s((1024, 1024), -128, 127).astype(np.int8)
        return api.scaled_matmul(a, b, out_dtype="i8", out_multiplier=F(2e-4), rounding=rounding)

    return run


def _q8ta(api: Any) -> Any:
    s = Stream()
    a, w = s((32, 128), -128, 128).astype(np.int8), s((64, 128), -127, 128).astype(np.int8)
    bias = (s((64,), -64, 64) / 64).astype(F)
    scale = ((1 + np.arange(64) / 64) * 2**-7).astype(F)[:, None]
    return api.scaled_matmul(
        a, w, rhs_transposed=True, lhs_zero_point=np.int8(-2), lhs_scale=F(2**-7), rhs_scale=scale, bias=bias,
        bias_stage="scaled", out_dtype="i8", out_scale=F(1 / 16), out_zero_point=np.int8(-1),
    )  # fmt: skip


def _w4a8(api: Any) -> Any:
    s = Stream()
    a, q = s((16, 256), -128, 128).astype(np.int8), s((64, 256), 0, 16).astype(np.uint8)
    m, g, n = np.arange(16)[:, None], np.arange(8)[None, :], np.arange(64)[:, None]
    return api.scaled_matmul(
        a, q, rhs_dtype="u4", rhs_transposed=True, lhs_scale=(2.0 ** -(5 + m % 3)).astype(F),
        lhs_zero_point=((7 * m) % 21 - 10).astype(np.int32), rhs_scale=(2.0 ** -(4 + (g + n) % 4)).astype(F),
        rhs_zero_point=((3 * g + 5 * n) % 16).astype(np.int32),
    )  # fmt: skip


def _dynamic(api: Any) -> Any:
    s = Stream()
    s((16, 256), 0, 2)
    s((64, 256), 0, 2)
    x = (s((8, 64), -1000, 1000) / 512).astype(F)
    return api.dynamic_quantize(x, symmetric=False)[0]


def _w4a16(api: Any) -> Any:
    s = Stream()
    a, q = (s((16, 256), -4, 5) / 8).astype(np.float16), s((64, 256), 0, 16).astype(np.uint8)
    g, n = np.arange(2)[None], np.arange(64)[:, None]
    return api.scaled_matmul(
        a, q, rhs_dtype="u4", rhs_transposed=True, rhs_scale=(2.0 ** -(3 + (n + g) % 3)).astype(np.float16),
        rhs_zero_point=((3 * n + 5 * g) % 16).astype(np.int32), out_dtype="f16",
    )  # fmt: skip


def _int8xint4(api: Any) -> Any:
    s = Stream()
    a, w = s((16, 512), -128, 128).astype(np.int8), (s((64, 512), 0, 16) - 8).astype(np.int8)
    return api.scaled_matmul(a, w, rhs_dtype="i4", rhs_transposed=True, out_dtype="i32")


def _a8w8(api: Any) -> Any:
    s = Stream()
    a, w = s((32, 512), -128, 128).astype(np.int8), s((96, 512), -127, 128).astype(np.int8)
    m, n = np.arange(32)[:, None], np.arange(96)[:, None]
    y = api.scaled_matmul(
        a, w, rhs_transposed=True, lhs_scale=(2.0 ** -(6 + m % 3)).astype(F),
        rhs_scale=(2.0 ** -(7 + n % 3)).astype(F), out_dtype="bf16",
    )  # fmt: skip
    return y.view(np.uint16)


def _grouped(api: Any) -> Any:
    s = Stream()
    a, w = s((32, 64), -128, 128).astype(np.int8), s((4, 48, 64), -127, 128).astype(np.int8)
    scale = (2.0 ** -(8 + np.arange(4))).astype(F).reshape(4, 1, 1)
    sizes = np.array([5, 0, 17, 10], np.int32)
    return api.grouped_matmul(a, w, rhs_transposed=True, group_sizes=sizes, rhs_scale=scale)


def _conv(api: Any) -> Any:
    s = Stream()
    x, w = s((4, 192, 71, 71), -128, 127).astype(np.int8), s((64, 192, 3, 3), -128, 127).astype(np.int8)
    scale = ((1 + np.arange(64) / 64) * 2**-12).astype(F).reshape(1, 64, 1, 1)
    y = api.conv2d_q(
        x, w, input_layout="NCHW", weight_layout="FCHW", strides=(2, 2), padding=(1, 1, 1, 1), activation="relu",
        out_dtype="i8", out_multiplier=scale, rounding="trunc",
    )  # fmt: skip
    return y[None]  # [G, N, K, Ho, Wo] with one group


CASES: dict[str, Callable[[Any], Any]] = {
    "qmlir14_gemm_scale2e-4": _gemm("trunc"),
    "qmlir14_gemm_scale2e-4_half_even": _gemm("half_even"),
    "qmlir40_relu_perchannel": _conv,
    "qmlir_q8ta_linear_none_half_even": _q8ta,
    "qmlir_w4a8_g32_int_zp": _w4a8,
    "qmlir_dynquant_per_token_asym_int8": _dynamic,
    "qmlir_bitblas_w4a16_g128_original": _w4a16,
    "qmlir_bitblas_int8xint4_i32": _int8xint4,
    "qmlir_a8w8_rowwise_bf16": _a8w8,
    "qmlir_grouped_int8_f32": _grouped,
}


class _On:
    """The eager operations on one target."""

    def __init__(self, target: str) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = qmlir.ops.BY_NAME[name]
        return lambda *args, **kw: operation(*args, target=self._target, **kw)


def _digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def test_every_result_is_tried() -> None:
    assert set(CASES) == set(GOLDEN)


@pytest.mark.parametrize("name", CASES)
def test_reference(name: str) -> None:
    y = CASES[name](qmlir.reference)
    assert (str(y.dtype), list(y.shape)) == (GOLDEN[name]["dtype"], GOLDEN[name]["shape"])
    assert _digest(y) == GOLDEN[name]["sha256"]


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, target: str) -> None:
    assert _digest(CASES[name](_On(target))) == GOLDEN[name]["sha256"]
