"""conv2d_q against the reference: geometries x schemes, on every target that runs here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.cover import diagonal, others_slow

import qmlir
from qmlir import TensorSpec
from qmlir.errors import UsageError

pytestmark = pytest.mark.sweep(fast=6, slow=40)

R = qmlir.reference

# name -> input [N, H, W, C], filters, kernel, keywords
GEOMETRIES: dict[str, tuple[tuple[int, int, int, int], int, tuple[int, int], dict[str, Any]]] = {
    "1x1": ((2, 7, 5, 16), 24, (1, 1), {}),
    "1x1_stride2": ((2, 8, 6, 16), 24, (1, 1), {"strides": (2, 2)}),
    "3x3_pad": ((2, 9, 8, 16), 24, (3, 3), {"padding": (1, 1, 1, 1)}),
    "3x3_one_channel": ((3, 8, 8, 1), 16, (3, 3), {"padding": (1, 1, 1, 1)}),
    "3x3_odd": ((1, 7, 11, 5), 7, (3, 3), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    "dilated": ((1, 12, 13, 8), 8, (3, 3), {"padding": (2, 3, 2, 3), "dilations": (2, 3)}),
    "7x7_stem": ((1, 32, 32, 3), 16, (7, 7), {"padding": (3, 3, 3, 3), "strides": (2, 2)}),
    "one_window": ((1, 2, 2, 16), 24, (3, 3), {"padding": (1, 1, 1, 1), "strides": (2, 2)}),
    "1x5": ((1, 4, 20, 4), 8, (1, 5), {"padding": (0, 2, 0, 2)}),
    "groups4": ((2, 6, 6, 16), 8, (3, 3), {"padding": (1, 1, 1, 1), "groups": 4}),
    "depthwise": ((1, 14, 14, 32), 32, (3, 3), {"padding": (1, 1, 1, 1), "groups": 32}),
    "depthwise_stride2": ((1, 15, 15, 24), 24, (3, 3), {"padding": (1, 1, 1, 1), "groups": 24, "strides": (2, 2)}),
    "depthwise_multiplier2": ((1, 7, 7, 6), 12, (3, 3), {"groups": 6}),
    "transposed": ((1, 5, 6, 8), 6, (3, 3), {"transposed": True, "strides": (2, 2), "padding": (1, 1, 1, 1),
                                            "output_padding": (1, 0)}),
}  # fmt: skip


def _symmetric(d: Any, f: int) -> dict[str, Any]:
    return {"input_scale": 0.02, "weight_scale": d.scales(f)}


def _input_zero(d: Any, f: int) -> dict[str, Any]:
    return {**_symmetric(d, f), "input_zero_point": 7, "bias": d.floats(f) * 30}


def _both_zeros(d: Any, f: int) -> dict[str, Any]:
    return {**_symmetric(d, f), "input_zero_point": np.int8(-128), "weight_zero_point": d.zeros(f, lo=-9, hi=9),
            "out_dtype": "bf16"}  # fmt: skip


def _requantised(d: Any, f: int) -> dict[str, Any]:
    return {**_symmetric(d, f), "input_zero_point": np.int8(-3), "bias": d.rng.integers(-500, 500, f).astype(np.int32),
            "activation": "relu", "out_dtype": "i8", "out_scale": 0.4, "out_zero_point": np.int8(-128)}  # fmt: skip


def _raw(d: Any, f: int) -> dict[str, Any]:
    return {"out_dtype": "i32", "input_zero_point": 3}


SCHEMES = {"symmetric": _symmetric, "input_zero": _input_zero, "both_zeros": _both_zeros, "requantised": _requantised,
           "raw": _raw}  # fmt: skip


def _operands(geometry: str, d: Any) -> tuple[Any, Any, dict[str, Any]]:
    shape, filters, kernel, kw = GEOMETRIES[geometry]
    weight = d.codes(filters, *kernel, shape[3] // kw.get("groups", 1))
    return d.codes(*shape), weight, kw


# Fast tier: on the CPU each geometry with `requantised`, which has all steps, and with one other scheme, in turn; on
# lavapipe with one of the two schemes with the most steps, in turn. Slow tier: every pair on both.
MOST = ("requantised", "both_zeros")
OTHERS = [s for s in SCHEMES if s != "requantised"]


def _pairs(on: str) -> list[Any]:
    found = []
    for i, geometry in enumerate(GEOMETRIES):
        fast = ("requantised", OTHERS[i % len(OTHERS)]) if on == "cpu" else (MOST[i % len(MOST)],)
        found += [pytest.param(geometry, s, marks=() if s in fast else pytest.mark.slow) for s in SCHEMES]
    return found


@pytest.mark.sweep(fast=12, slow=40)
@pytest.mark.parametrize(("geometry", "scheme"), _pairs("cpu"))
def test_constant_weights_on_the_cpu(geometry: str, scheme: str, data: Any, same: Any) -> None:
    _constant_weights(geometry, scheme, "cpu", data, same)


@pytest.mark.parametrize(("geometry", "scheme"), _pairs("vulkan:lavapipe"))
def test_constant_weights_on_lavapipe(geometry: str, scheme: str, lavapipe: str, data: Any, same: Any) -> None:
    _constant_weights(geometry, scheme, lavapipe, data, same)


def _constant_weights(geometry: str, scheme: str, target: str, data: Any, same: Any) -> None:
    x, weight, kw = _operands(geometry, data)
    kw = {**kw, **SCHEMES[scheme](data, weight.shape[0])}
    program = qmlir.load(qmlir.ops.conv2d_q.compile(TensorSpec(x.shape, "i8"), weight, target=target, **kw))
    same(program.main(x), R.conv2d_q(x, weight, **kw))


@pytest.mark.parametrize("geometry", ["3x3_pad", "depthwise", "transposed"])
def test_everything_at_run_time(geometry: str, target: str, data: Any, same: Any) -> None:
    x, weight, kw = _operands(geometry, data)
    kw = {**kw, **_both_zeros(data, weight.shape[0])}
    same(qmlir.ops.conv2d_q(x, weight, target=target, **kw), R.conv2d_q(x, weight, **kw))


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_dynamic_batch(batch: int, target: str, data: Any, same: Any) -> None:
    weight = data.codes(8, 3, 3, 4)
    kw = {"padding": (1, 1, 1, 1), **_requantised(data, 8)}
    program = qmlir.load(qmlir.ops.conv2d_q.compile(TensorSpec((None, 6, 6, 4), "i8"), weight, target=target, **kw))
    x = data.codes(batch, 6, 6, 4)
    same(program.main(x), R.conv2d_q(x, weight, **kw))


@pytest.mark.parametrize(("weight_layout", "input_layout"), diagonal(["FHWC", "HWCF", "FCHW"], ["NCHW", "NHWC"]))
def test_layouts(input_layout: str, weight_layout: str, target: str, data: Any, same: Any) -> None:
    x = data.codes(2, 7, 6, 8, dtype="u8")
    weight = data.codes(5, 3, 2, 8)
    kw = {"strides": (2, 1), "padding": (1, 0, 1, 1), "input_layout": input_layout, "weight_layout": weight_layout,
          **_symmetric(data, 5), "input_zero_point": np.uint8(120), "bias": data.floats(5)}  # fmt: skip
    expected = R.conv2d_q(x, weight, **{**kw, "input_layout": "NHWC", "weight_layout": "FHWC"})
    order = {"FHWC": (0, 1, 2, 3), "HWCF": (1, 2, 3, 0), "FCHW": (0, 3, 1, 2)}[weight_layout]
    given = np.ascontiguousarray(np.transpose(weight, order))
    if input_layout == "NCHW":
        x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
        expected = np.ascontiguousarray(np.moveaxis(expected, -1, 1))
    same(R.conv2d_q(x, given, **kw), expected)
    program = qmlir.load(qmlir.ops.conv2d_q.compile(TensorSpec(x.shape, "u8"), given, target=target, **kw))
    same(program.main(x), expected)


@pytest.mark.parametrize("kind", others_slow([np.float32, np.float16], np.float16))
def test_weight_only(kind: Any, target: str, data: Any, near: Any) -> None:
    x = data.floats(1, 6, 6, 16).astype(kind)
    weight = data.codes(8, 3, 3, 16)
    kw = {"weight_scale": data.scales(8), "padding": (1, 1, 1, 1)}
    expected = R.conv2d_q(x, weight, **kw)
    magnitude = np.abs(weight.astype(np.int32)).clip(0, 127).astype(np.int8)
    terms = 144 * R.conv2d_q(np.abs(x.astype(np.float32)), magnitude, **kw)
    near(qmlir.ops.conv2d_q(x, weight, target=target, **kw), expected, terms)


@pytest.mark.parametrize("filters", [4, 6])
def test_dequantised_weights_of_a_small_image(filters: int, lavapipe: str, data: Any, same: Any) -> None:
    """Regression: if the dequantisation was fused into the product on Vulkan, some elements stayed zero."""
    x = data.rng.integers(-4, 5, (1, 6, 6, 8)).astype(np.float16)
    kw = {"weight": data.codes(filters, 3, 3, 8, dtype="i4"), "weight_dtype": "i8", "weight_scale": np.float32(0.5)}
    same(qmlir.ops.conv2d_q(x, **kw, padding=(1, 1, 1, 1), target=lavapipe),
         R.conv2d_q(x, **kw, padding=(1, 1, 1, 1)))  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second"), [("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e4m3fnuz")]
)
def test_one_byte_floats(first: str, second: str, data: Any, same: Any) -> None:
    x, w = (data.rng.integers(-4, 5, s).astype(np.float32).astype(getattr(ml_dtypes, d))
            for s, d in (((2, 7, 6, 8), first), ((4, 3, 3, 4), second)))  # fmt: skip
    kw = {"input_scale": np.float32(0.5), "weight_scale": data.scales(4), "padding": (1, 0, 1, 2), "groups": 2,
          "activation": "relu", "out_dtype": "f16"}  # fmt: skip
    same(qmlir.ops.conv2d_q(x, w, **kw), R.conv2d_q(x, w, **kw))  # sums of small integers are exact


@pytest.mark.parametrize(
    ("shape", "weight", "options", "message"),
    [
        ((1, 8, 8, 16), (3, 3, 16, 32), {},
         r"'weight' \[3, 3, 16, 32\] \(FHWC\) has filters of 3x16, which with dilations \[1, 1\] do not fit 'input' "
         r"\[1, 8, 8, 16\] \(NHWC\) with padding \[0, 0, 0, 0\]; 'weight_layout' 'HWCF', 'FCHW' reads"),
        ((1, 16, 4, 4), (32, 16, 3, 3), {"input_layout": "NCHW", "weight_layout": "FCHW", "dilations": (4, 4)},
         r"'weight' \[32, 16, 3, 3\] \(FCHW\) has filters of 3x3, which with dilations \[4, 4\] do not fit"),
        ((1, 4, 4, 8), (8, 3, 3, 8), {"transposed": True, "padding": (9, 9, 9, 9)},
         r"'padding' \[9, 9, 9, 9\] takes away more than the result has"),
        ((8, 8, 16), (8, 3, 3, 16), {}, r"'input' must have four axes, but has shape \[8, 8, 16\]"),
        ((1, 8, 8, 16), (8, 3, 3, 16), {"strides": (0, 1)}, r"'strides' \[0, 1\] must be at least 1"),
    ],
)  # fmt: skip
def test_sizes_that_leave_no_result(
    shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        qmlir.ops.conv2d_q.compile(TensorSpec(shape, "i8"), np.ones(weight, np.int8), **options)
    with pytest.raises(UsageError, match=message):
        qmlir.ops.conv2d_q(np.ones(shape, np.int8), np.ones(weight, np.int8), **options)


def test_groups_with_filters_of_run_time_in_hwcf(target: str, data: Any, same: Any) -> None:
    """Regression: data tiling on CPUs packed each group's filters at offsets that the product did not read."""
    x, w = data.codes(1, 6, 7, 8), data.codes(3, 3, 4, 10)
    kw = {"weight_layout": "HWCF", "groups": 2, "out_dtype": "i32"}
    same(qmlir.ops.conv2d_q(x, w, target=target, **kw), R.conv2d_q(x, w, **kw))


def test_packed_filters_of_an_odd_number_of_channels(data: Any, same: Any) -> None:
    """Regression: the reference took the code that pads the last byte for a channel."""
    w = data.codes(5, 2, 2, 3, dtype="i4")
    x, kw = data.codes(1, 4, 4, 3), {"weight_dtype": "i4", "out_dtype": "i32"}
    expected = R.conv2d_q(x, w, **kw)
    packed = R.pack(w, "i4", "low_first")
    same(R.conv2d_q(x, packed, weight_packing="low_first", **kw), expected)
    same(qmlir.ops.conv2d_q(x, packed, weight_packing="low_first", **kw), expected)
