"""Edge cases, with the results that docs/semantics.md states for them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qmlir
from qmlir.errors import InputError, VerifyError

pytestmark = pytest.mark.sweep(fast=3, slow=40)

R = qmlir.reference
F = np.float32
SPEC = qmlir.TensorSpec


def _both(name: str, *args: Any, target: str, **kw: Any) -> tuple[Any, Any]:
    return qmlir.ops.BY_NAME[name](*args, target=target, **kw), R.BY_NAME[name](*args, **kw)


@pytest.mark.parametrize("rounding", ["half_even", "half_away", "trunc"])
def test_quantize_at_the_edges(rounding: str, target: str, same: Any) -> None:
    x = np.array(
        [[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, -0.49999997, 126.5, 127.5, 128.5, -128.5, -129.0, 1e30, -1e30,
          np.inf, -np.inf, np.nan, 1e-45, -0.0]], F)  # fmt: skip
    actual, expected = _both("quantize", x, F(1.0), np.int32(3), rounding=rounding, target=target)
    same(actual, expected)
    # By hand, from section 2: NaN gives z, infinities saturate.
    assert expected[0, 15:18].tolist() == [127, -128, 3]
    by_hand = {"half_even": [3, 5, 5, 3, 1, 1], "half_away": [4, 5, 6, 2, 1, 0], "trunc": [3, 4, 5, 3, 2, 1]}
    assert expected[0, :6].tolist() == by_hand[rounding]
    assert expected[0, 6:8].tolist() == [3, 3]


@pytest.mark.parametrize("recipe", ["onnx", "torchao", "fbgemm"])
def test_zero_points_of_rows_that_hold_no_numbers(recipe: str, target: str, same: Any) -> None:
    """Regression: recipe `onnx` converted NaN to integer zero points, with a result that depends on the device. On
    sm_90a IREE 3.13's maximum ignores NaN."""
    if recipe == "fbgemm" and target != "cpu":
        pytest.skip("recipe fbgemm is stated in f64")
    x = np.ones((5, 40), F)
    x[0, 3], x[1, 39], x[2, 0], x[3, 17] = np.inf, np.nan, -np.inf, -np.nan
    with np.errstate(invalid="ignore"):
        actual, expected = _both("dynamic_quantize", x, symmetric=False, recipe=recipe, out_dtype="u8", target=target)
    for a, e in zip(actual, expected, strict=True):
        same(a, e)
    assert actual[2].ravel()[[1, 3]].tolist() == [0, 0]


FAR = (1000, 2**31 - 1, -(2**31))  # zero points outside of the range of 8-bit codes


@pytest.mark.parametrize("zero", FAR)
def test_dequant_by_a_zero_point_outside_of_the_codes(zero: int, target: str, data: Any, same: Any) -> None:
    """`q - z` is an i32. Regression: the reference computed it as an integer without bounds."""
    made = qmlir.ops.dequantize.compile(SPEC((3, 8), "i8"), F(0.5), SPEC((), "i32"), target=target)
    q = data.codes(3, 8)
    same(qmlir.load(made).main(q, np.int32(zero)), R.dequantize(q, F(0.5), np.int32(zero)))


@pytest.mark.parametrize("grouped", [False, True])
def test_sums_with_zero_points_outside_of_the_codes(grouped: bool, target: str, data: Any, same: Any) -> None:
    """Sums are modulo 2^32, also those of a group along K. Regression: the reference's were not."""
    a, b = data.codes(3, 64), data.codes(64, 8)
    kw: dict[str, Any] = {"rhs_scale": data.scales(2, 8)} if grouped else {}
    kw["out_dtype"] = "f32" if grouped else "i32"
    made = qmlir.ops.scaled_matmul.compile(
        SPEC((3, 64), "i8"), b, lhs_zero_point=SPEC((3, 1), "i32"), rhs_zero_point=SPEC((1, 8), "i32"), target=target,
        **kw,
    )  # fmt: skip
    main = qmlir.load(made).main
    for one, other in ((FAR, (5,)), ((-7,), FAR), (FAR, FAR)):
        za, zb = np.resize(one, (3, 1)).astype(np.int32), np.resize(other, (1, 8)).astype(np.int32)
        same(main(a, za, zb), R.scaled_matmul(a, b, lhs_zero_point=za, rhs_zero_point=zb, **kw))


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_padding_with_a_zero_point_outside_of_the_codes(dtype: str, target: str, data: Any, same: Any) -> None:
    """Padding is filled with the code of 0. Regression: if there was none, it was the low byte of the zero point."""
    x, w = data.codes(1, 4, 4, 4, dtype=dtype), data.codes(2, 3, 3, 4)
    lo, hi = (-128, 127) if dtype == "i8" else (0, 255)
    kw = {"input_zero_point": SPEC((), "i32"), "out_dtype": "i32", "target": target}
    main = qmlir.load(qmlir.ops.conv2d_q.compile(SPEC(x.shape, dtype), w, padding=(1, 1, 1, 1), **kw)).main
    for zero in (lo, hi):
        z = np.int32(zero)
        same(main(x, z), R.conv2d_q(x, w, input_zero_point=z, padding=(1, 1, 1, 1), out_dtype="i32"))
    for zero in (lo - 1, hi + 1, 2**31 - 1):
        with pytest.raises(InputError, match=rf"'input_zero_point' of a padded convolution is outside \[{lo}, {hi}"):
            main(x, np.int32(zero))
    said = rf"'input_zero_point' is {hi + 1}, but padding is filled with the code of 0, which {dtype} codes have for"
    with pytest.raises(VerifyError, match=said):
        qmlir.ops.conv2d_q.compile(
            SPEC(x.shape, dtype), w, padding=(0, 0, 1, 0), **kw | {"input_zero_point": np.int32(hi + 1)}
        )


def test_minus_128_on_both_sides(target: str, same: Any) -> None:
    a = np.full((3, 512), -128, np.int8)
    actual, expected = _both("scaled_matmul", a, a.T.copy(), out_dtype="i32", target=target)
    same(actual, expected)
    assert (expected == 512 * 128 * 128).all()


def test_the_largest_sum_that_fits_in_i32(target: str, same: Any) -> None:
    k = 131071  # (2^31 - 1) // 2^14
    a = np.full((1, k), -128, np.int8)
    actual, expected = _both("scaled_matmul", a, a.T.copy(), out_dtype="i32", target=target)
    same(actual, expected)
    assert expected[0, 0] == k * 16384
    with pytest.raises(qmlir.QmlirError, match="2147483648, which is more than"):
        qmlir.ops.scaled_matmul(np.zeros((1, k + 1), np.int8), np.zeros((k + 1, 1), np.int8), out_dtype="i32")


@pytest.mark.parametrize("scale", [0.0, 1e-42, 3e38])
def test_zero_denormal_and_huge_scales(scale: float, target: str, data: Any) -> None:
    a, b = data.codes(4, 32), data.codes(32, 8)
    actual, expected = _both("scaled_matmul", a, b, lhs_scale=F(scale), target=target)
    if 0 < scale < np.finfo(F).tiny and not actual.any():
        return  # a device may flush denormals, which makes the scale 0; nothing else may differ
    assert np.array_equal(actual, expected)


def test_k_of_zero_leaves_the_bias(target: str, same: Any) -> None:
    bias = np.array([1.5, -2.0, 3.0], F)
    actual, expected = _both(
        "scaled_matmul", np.zeros((2, 0), np.int8), np.zeros((0, 3), np.int8), lhs_scale=0.5, bias=bias, target=target
    )
    same(actual, expected)
    assert expected.tolist() == [[1.5, -2.0, 3.0]] * 2


@pytest.mark.parametrize(
    "op", [qmlir.ops.unpack, lambda x, **kw: qmlir.ops.dequantize(x, 0.5, packing="low_first", **kw)]
)
def test_a_negative_length(op: Any) -> None:
    """Regression: the message was empty."""
    with pytest.raises(qmlir.errors.UsageError, match="'length' is -1, but must not be negative"):
        op(np.zeros((2, 4), np.uint8), dtype="i4", length=-1)


@pytest.mark.parametrize(("shape", "granularity"), [((0, 8), "tensor"), ((6, 0), "token"), ((0, 8), "token")])
def test_dynamic_quantisation_of_nothing(shape: tuple[int, int], granularity: str, same: Any) -> None:
    """Regression: with zero points IREE's compiler divided by the number of elements, 0, and the process ended."""
    kw = {"granularity": granularity, "symmetric": False, "recipe": "onnx", "out_dtype": "u8"}
    x = np.zeros(shape, np.float32)
    for got, want in zip(qmlir.ops.dynamic_quantize(x, **kw), R.dynamic_quantize(x, **kw), strict=True):
        same(got, want)


@pytest.mark.parametrize("recipe", ["torchao", "onnx", "fbgemm", "amax"])
def test_constant_rows_in_dynamic_quantisation(recipe: str, target: str, same: Any) -> None:
    x = np.array([[0.0] * 8, [2.5] * 8, [-2.5] * 8, [1e-30] * 8], F)
    kw = {"recipe": recipe, "symmetric": recipe == "amax", "out_dtype": "u8" if recipe == "onnx" else "i8"}
    actual, expected = _both("dynamic_quantize", x, target=target, **kw)
    for got, want in zip(actual, [e for e in expected if e is not None], strict=True):
        same(got, want)


def test_nan_and_infinity_in_weight_only_products(target: str) -> None:
    x = np.array([[np.nan, 1, 2, 3], [np.inf, 1, 1, 1], [1, 1, 1, 1]], F)
    w = np.ones((4, 2), np.int8)
    y = qmlir.ops.scaled_matmul(x, w, rhs_scale=F(0.5), target=target)
    assert np.isnan(y[0]).all()
    assert np.isposinf(y[1]).all()
    assert y[2].tolist() == [2.0, 2.0]


def test_requantised_nan_and_infinity(target: str, same: Any) -> None:
    a, b = np.array([[100], [0], [-100]], np.int8), np.array([[100, 1]], np.int8)
    kw = {"lhs_scale": F(3e38), "rhs_scale": F(3e38), "out_dtype": "i8", "out_zero_point": np.int32(5)}
    actual, expected = _both("scaled_matmul", a, b, target=target, **kw)
    same(actual, expected)
    assert expected[0].tolist() == [127, 127]  # the scales' product is infinite
    assert expected[1].tolist() == [5, 5]  # 0 * inf is NaN, which becomes the zero point


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 1), (2, 1, 1)])
def test_bf16_of_one_element(shape: tuple[int, int, int], target: str, same: Any) -> None:
    """Regression: on Vulkan the bitcast of a single element was fused and did not compile."""
    import ml_dtypes

    m, n, k = shape
    kw = {"lhs": np.full((m, k), 1.5, ml_dtypes.bfloat16), "rhs": np.full((k, n), -3, np.int8),
          "rhs_scale": np.float32(0.5), "out_dtype": "bf16"}  # fmt: skip
    same(qmlir.ops.scaled_matmul(**kw, target=target), R.scaled_matmul(**kw))


def test_a_sum_longer_than_the_loops_of_a_software_device(target: str, data: Any, same: Any) -> None:
    """lavapipe leaves loops after 65535 iterations. The sum is exact, because its terms are small integers."""
    kw = {"lhs": data.rng.integers(-2, 3, (2, 65544)).astype(np.float32),
          "rhs": data.rng.integers(-2, 3, (65544, 3)).astype(np.float32)}  # fmt: skip
    same(qmlir.ops.scaled_matmul(**kw, target=target), R.scaled_matmul(**kw))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_batched_rows_of_dynamic_size_with_zero_points(dtype: str) -> None:
    """Regression: data tiling read row sums that were never written, in a batched product with dynamic, ragged rows."""
    rng = np.random.default_rng(0)
    kind = np.dtype("int8" if dtype == "i8" else "uint8")
    a, b = (rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, s).astype(kind) for s in ((4, 7, 8), (4, 8, 7)))
    kw = {"lhs_zero_point": np.int32(12), "rhs_zero_point": np.int32(13), "out_dtype": "i32"}
    spec = qmlir.TensorSpec
    made = qmlir.ops.scaled_matmul.compile(spec((4, None, 8), dtype), spec((4, 8, None), dtype), **kw)
    assert np.array_equal(qmlir.load(made).main(a, b), R.scaled_matmul(a, b, **kw))


@pytest.mark.parametrize("shape", [(1, 5, 33), (3, 5, 33), (2, 3, 5, 33)])
def test_one_constant_weight_for_a_batch_with_zero_points(shape: tuple[int, ...], data: Any, same: Any) -> None:
    """Regression: the correction by folded sums of a weight `[1, K, N]` had no loop for the batch axis of the sums."""
    x, w = data.codes(*shape, dtype="u8"), data.codes(1, 33, 6)
    kw = {"lhs_zero_point": np.uint8(131), "out_dtype": "i32"}
    made = qmlir.ops.scaled_matmul.compile(SPEC(shape, "u8"), w, **kw)
    same(qmlir.load(made).main(x), R.scaled_matmul(x, w, **kw))


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("scales", "zeros"), [(2, 4), (4, 2), (2, 3)])
def test_scale_and_zero_point_with_blocks_of_their_own(
    scales: int, zeros: int, constant: bool, data: Any, near: Any, terms: Any
) -> None:
    """Regression: the one with longer blocks had too few values for the groups, with integer and float activations."""
    w = data.codes(6, 96, dtype="i4")
    kw = {"rhs_scale": data.scales(6, scales), "rhs_zero_point": data.zeros(6, zeros, lo=-8, hi=8)}
    stated = {"rhs_transposed": True, "rhs_dtype": "i4"}
    given = kw if constant else {n: SPEC(v.shape, v.dtype) for n, v in kw.items()}
    for x in (data.codes(5, 96), data.floats(5, 96)):
        made = qmlir.ops.scaled_matmul.compile(SPEC(x.shape, x.dtype), w, **given, **stated)
        actual = qmlir.load(made).main(x, *(() if constant else kw.values()))
        near(actual, R.scaled_matmul(x, w, **kw, **stated), terms(x, w, kw | stated))


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("dtype", ["u4", "u2", "i4"])
def test_zero_points_of_a_byte_have_the_sign_of_shorter_codes(dtype: str, target: str, data: Any, same: Any) -> None:
    """Regression: the zero point 200 of unsigned codes shorter than a byte was read as -56."""
    w, zero = data.codes(6, 32, dtype=dtype), np.array([[200], [3], [255], [0], [128], [127]], np.uint8)
    zero = zero if dtype[0] == "u" else zero.view(np.int8)
    x, kw = data.codes(5, 32), {"rhs_zero_point": zero, "rhs_transposed": True, "rhs_dtype": dtype}
    same(*_both("scaled_matmul", x, w, target=target, out_dtype="i32", **kw))
    same(*_both("dequant", w, F(0.5), zero, target=target, dtype=dtype))


@pytest.mark.parametrize("dtype", ["u8", "u4"])
def test_zero_points_of_a_byte_are_signed_where_codes_are_offset(dtype: str, target: str, data: Any, same: Any) -> None:
    """Regression: the zero point -5 in mode `offset_int` (u8 codes minus 128) was read as 251."""
    w, zero = data.codes(3, 32, dtype=dtype), np.array([[-5], [3], [-8]], np.int8)
    x, kw = data.codes(5, 32), {"rhs_zero_point": zero, "rhs_transposed": True, "rhs_dtype": dtype}
    same(*_both("scaled_matmul", x, w, target=target, out_dtype="i32", rhs_zero_mode="offset_int", **kw))
    same(*_both("dequant", w, F(0.5), zero, target=target, dtype=dtype, zero_mode="offset_int"))


@pytest.mark.parametrize("k", [512, 1024])
def test_converted_rows_of_dynamic_number(k: int, target: str, data: Any, near: Any, terms: Any) -> None:
    """Regression: with the rows' conversion to floats fused, most of a ragged N was wrong or NaN on lavapipe."""
    x, w = data.codes(31, k), data.floats(k, 63).astype(np.float16)
    made = qmlir.ops.scaled_matmul.compile(SPEC((None, k), "i8"), w, target=target)
    near(qmlir.load(made).main(x), R.scaled_matmul(x, w), terms(x, w, {}))


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_codes_by_bf16_on_a_cpu_without_bf16(dtype: str) -> None:
    """Regression: such a program did not link, because `__truncsfbf2` is a library function."""
    data = np.random.default_rng(0)
    x = data.standard_normal((3, 40)).astype(ml_dtypes.bfloat16)
    low, high = (-128, 128) if dtype == "i8" else (0, 256)
    w = data.integers(low, high, (40, 6)).astype(np.int8 if dtype == "i8" else np.uint8)
    spec = qmlir.TensorSpec
    artifact = qmlir.ops.scaled_matmul.compile(
        spec((3, 40), "bf16"), spec((40, 6), dtype), out_dtype="f32", target="cpu:x86-64"
    )
    actual = qmlir.load(artifact).main(x, w)
    expected = R.scaled_matmul(x, w, out_dtype="f32")
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)
