"""qmlir.compat.aiter against float64 products of the operands, and the reference with the scheme spelled by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qmlir
from qmlir.compat import aiter
from qmlir.errors import InputError, UsageError

F = np.float32
BF16 = ml_dtypes.bfloat16
_gelu = np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))


def exact(x: Any) -> Any:
    return x.astype(np.float64)


def sizes(a: Any, b: Any) -> Any:
    """K * sum |a * b| for a [M, K], b [K, N]."""
    return a.shape[-1] * (np.abs(exact(a)) @ np.abs(exact(b)))


@pytest.mark.parametrize("dtype", [np.float16, pytest.param(BF16, marks=pytest.mark.slow)])
def test_gemm_bias_adds_before_the_one_rounding(dtype: Any, data: Any, near: Callable[..., None]) -> None:
    x, w, bias = (data.floats(*shape).astype(dtype) for shape in ((9, 64), (24, 64), (24,)))
    got = aiter.gemm_bias(x, w, bias)
    assert got.dtype == dtype
    near(got, exact(x) @ exact(w).T + exact(bias), sizes(x, w.T) + np.abs(exact(bias)))


def test_gemm_bias_rounds_once() -> None:
    # 2049 + 1: rounding the product first would give 2048, then 2048 + 1 -> 2048.
    x, w, bias = np.ones((1, 2), np.float16), np.array([[2048, 1]], np.float16), np.ones(1, np.float16)
    assert aiter.gemm_bias(x, w, bias)[0, 0] == 2050


def test_gemm_bias_with_the_weight_as_it_is(data: Any, near: Callable[..., None]) -> None:
    x, w, bias = data.floats(5, 32), data.floats(32, 16), data.floats(16)
    near(aiter.gemm_bias(x, w, bias, False), exact(x) @ exact(w) + bias, sizes(x, w) + np.abs(bias))


def test_gemm_gelu_is_the_erf_form(data: Any, near: Callable[..., None]) -> None:
    x, w, bias = data.floats(9, 32), data.floats(16, 32), data.floats(16)
    got = aiter.gemm_gelu(x, w, bias)
    # The f32 erf of the devices is within a few units in the last place.
    near(got, _gelu(exact(x) @ exact(w).T + bias), 2 * sizes(x, w.T) + np.abs(bias) + 8)


def test_gemm_relu_without_a_bias(data: Any, near: Callable[..., None]) -> None:
    x, w = data.floats(9, 32).astype(np.float16), data.floats(16, 32).astype(np.float16)
    near(aiter.gemm_relu(x, w), np.maximum(exact(x) @ exact(w).T, 0), sizes(x, w.T))


@pytest.mark.parametrize("transpose_a", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("transpose_b", [pytest.param(False, marks=pytest.mark.slow), True])
def test_batched_gemm(transpose_a: bool, transpose_b: bool, data: Any, near: Callable[..., None]) -> None:
    a, b = data.floats(3, 5, 32).astype(np.float16), data.floats(3, 32, 12).astype(np.float16)
    got = aiter.batched_gemm(a.swapaxes(1, 2) if transpose_a else a, b.swapaxes(1, 2) if transpose_b else b,
                             transpose_a, transpose_b)  # fmt: skip
    near(got, exact(a) @ exact(b), sizes(a, b))


def test_cutlass_gemm(data: Any, near: Callable[..., None]) -> None:
    a, b, c = (data.floats(*shape).astype(np.float16) for shape in ((6, 32), (32, 20), (6, 20)))
    got = aiter.cutlass_gemm(a, b, 0.5, 2.0, c)
    near(got, 0.5 * (exact(a) @ exact(b)) + 2 * exact(c), 0.5 * sizes(a, b) + 4 * np.abs(exact(c)))


def test_cutlass_gemm_reads_no_c_without_beta(data: Any, near: Callable[..., None]) -> None:
    a, b = data.floats(6, 32).astype(np.float16), data.floats(32, 20).astype(np.float16)
    got = aiter.cutlass_gemm(a, b, c=np.full((6, 20), np.nan, np.float16))
    near(got, exact(a) @ exact(b), sizes(a, b))


@pytest.mark.parametrize(
    ("scales", "output_dtype"),
    [
        (((1,), (1,)), np.float16),
        pytest.param(((9,), (16, 1)), "float32", marks=pytest.mark.slow),
        (((9, 1), ()), "torch.bfloat16"),
    ],
)
def test_int8_gemm(scales: Any, output_dtype: Any, data: Any, same: Callable[..., None]) -> None:
    x, w = data.codes(9, 48), data.codes(16, 48)
    sx, sw = (data.rng.standard_normal(shape).astype(F) for shape in scales)  # negative ones among them
    got = aiter.int8_gemm(x, w, sx, sw, output_dtype)
    name = {"float32": "f32", "torch.bfloat16": "bf16"}.get(str(output_dtype), "f16")
    same(got, qmlir.reference.scaled_matmul(
        x, w, rhs_transposed=True, lhs_scale=sx.reshape(-1, 1) if sx.size > 1 else sx.reshape(()),
        rhs_scale=sw.reshape(-1, 1) if sw.size > 1 else sw.reshape(()), out_dtype=name,
    ))  # fmt: skip
    acc = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(F)
    same(got, (acc * (sx.reshape(-1, 1) * sw.reshape(1, -1))).astype(got.dtype))


def test_int8_gemm_is_float16_by_default_and_golden_in_bfloat16(golden: Any) -> None:
    s = golden.Stream(100_000)
    x, w = s((32, 512), -128, 128).astype(np.int8), s((96, 512), -127, 128).astype(np.int8)
    m, n = np.arange(32), np.arange(96)
    scales = (2.0 ** -(6 + m % 3)).astype(F), (2.0 ** -(7 + n % 3)).astype(F)
    got = aiter.int8_gemm(x, w, *scales, output_dtype="bfloat16")
    assert golden._digest(got.view(np.uint16)) == golden.GOLDEN["qmlir_a8w8_rowwise_bf16"]["sha256"]
    import inspect

    assert inspect.signature(aiter.int8_gemm).parameters["output_dtype"].default == "float16"


def sparse(data: Any, *shape: int) -> Any:
    """Dense floats with 2 x 4 blocks of zeros."""
    keep = np.kron(data.rng.random((shape[0] // 2, shape[1] // 4)) < 0.3, np.ones((2, 4)))
    return (data.floats(*shape) * keep).astype(F)


@pytest.mark.parametrize("pattern", ["csr", "coo", "block"])
def test_sparse_gemm(pattern: str, data: Any, near: Callable[..., None]) -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x, w = data.floats(6, 32), sparse(data, 16, 32)
    made = {"csr": scipy_sparse.csr_array, "coo": scipy_sparse.coo_array}.get(pattern)
    matrix = made(w) if made else scipy_sparse.bsr_array(w, blocksize=(2, 4))
    got = aiter.sparse_gemm(x, matrix, pattern)
    near(got, exact(matrix @ x.astype(np.float64).T).T, sizes(x, w.T))
    if pattern == "csr":
        near(aiter.sparse_gemm(x[:, :16], matrix, pattern, transpose_weight=False), exact(x[:, :16]) @ exact(w),
             sizes(x[:, :16], w))  # fmt: skip


@pytest.mark.slow
def test_sparse_gemm_in_float16(data: Any, near: Callable[..., None]) -> None:
    x, w = data.floats(6, 32).astype(np.float16), sparse(data, 16, 32).astype(np.float16)
    weight = qmlir.SparseWeight.from_dense(w, "csr", rhs_transposed=True)
    near(aiter.sparse_gemm(x, weight, "csr"), exact(x) @ exact(w).T, sizes(x, w.T))


def test_sparse_gemm_of_a_torch_tensor(data: Any) -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(data.floats(6, 32)), torch.from_numpy(sparse(data, 16, 32))
    for pattern, stored in (("csr", w.to_sparse_csr()), ("coo", w.to_sparse_coo()), ("block", w.to_sparse_bsr((2, 4)))):
        got = aiter.sparse_gemm(x, stored, pattern)
        torch.testing.assert_close(got.double(), x.double() @ w.double().T, rtol=1e-5, atol=1e-4)


def test_sparse_gemm_refusals(data: Any) -> None:
    x, w = data.floats(6, 32), sparse(data, 16, 32)
    weight = qmlir.SparseWeight.from_dense(w, "coo", rhs_transposed=True)
    for args, message in (
        ((x, weight, "csc"), r"sparsity_pattern='csc' is not known; did you mean 'csr'"),
        ((x, weight, "csr"), r"sparsity_pattern='csr', but 'weight' is in coo form"),
        ((x, w, "csr"), r"'weight' is a dense ndarray; .*SparseWeight.from_dense makes one"),
        ((x.astype(np.float16), weight, "coo"), r"'input' is f16 and 'weight' f32; they must both be"),
    ):
        with pytest.raises(UsageError, match=message):
            aiter.sparse_gemm(*args)


def experts(data: Any) -> tuple[Any, Any, Any]:
    x, w = data.floats(7, 16).astype(np.float16), data.floats(4, 16, 12).astype(np.float16)
    return x, w, data.rng.integers(0, 4, (7, 2))


def test_grouped_gemm_sums_the_experts(data: Any, near: Callable[..., None]) -> None:
    x, w, ids = experts(data)
    got = aiter.grouped_gemm(x, w, ids, topk=2)
    products = np.einsum("tk,tjkn->tjn", exact(x), exact(w)[ids])
    bound = 16 * np.einsum("tk,tjkn->tn", np.abs(exact(x)), np.abs(exact(w))[ids])
    near(got, products.sum(1), bound)
    weights = data.rng.random((7, 2)).astype(F)
    got = aiter.grouped_gemm(x, w, ids, routing_weights=weights)
    near(got, (products * weights[..., None]).sum(1), bound)


def test_the_moe_layer_of_the_page(data: Any, near: Callable[..., None]) -> None:
    """Two grouped products with one row a slot, then the routing weights: the page's last example."""
    x, w1, ids = experts(data)
    w2 = data.floats(4, 12, 16).astype(np.float16)
    hidden = aiter.grouped_gemm(x, w1, ids, combine=False)
    assert hidden.shape == (7, 2, 12)
    out = aiter.grouped_gemm(hidden, w2, ids, combine=False)
    ref = np.einsum("tjk,tjkn->tjn", exact(hidden), exact(w2)[ids])
    near(out, ref, 12 * np.einsum("tjk,tjkn->tjn", np.abs(exact(hidden)), np.abs(exact(w2))[ids]))


def test_an_expert_that_is_none(data: Any) -> None:
    x, w, ids = experts(data)
    ids[3, 1] = 4
    with pytest.raises(InputError, match=r"expert_ids\[3, 1\] = 4|outside"):
        aiter.grouped_gemm(x, w, ids)


@pytest.mark.slow
def test_an_unused_slot_is_a_row_of_zeros(data: Any) -> None:
    x, w, ids = experts(data)
    ids[3, 1] = -1
    got = aiter.grouped_gemm(x, w, ids, combine=False, skip_invalid=True)
    assert not got[3, 1].any()
    assert got[3, 0].any()


def test_torch_in_torch_out(data: Any) -> None:
    torch = pytest.importorskip("torch")
    x, w = data.codes(9, 48), data.codes(16, 48)
    args = torch.from_numpy(x), torch.from_numpy(w), torch.tensor([0.5]), torch.tensor([0.25])
    got = aiter.int8_gemm(*args)
    assert got.dtype == torch.float16
    assert aiter.int8_gemm(*args, output_dtype=torch.bfloat16).dtype == torch.bfloat16
    np.testing.assert_array_equal(got.numpy(), aiter.int8_gemm(x, w, 0.5, 0.25))
    xb, wb, bias = (torch.from_numpy(data.floats(*s)).to(torch.bfloat16) for s in ((5, 32), (8, 32), (8,)))
    got = aiter.gemm_bias(xb, wb, bias)
    assert got.dtype == torch.bfloat16
    ref = torch.nn.functional.linear(xb.double(), wb.double(), bias.double())
    torch.testing.assert_close(got.double(), ref, rtol=2**-8, atol=1e-4)


@pytest.mark.slow
def test_on_lavapipe(lavapipe: str, data: Any, same: Callable[..., None]) -> None:
    x, w = data.codes(9, 48), data.codes(16, 48)
    same(aiter.int8_gemm(x, w, 0.5, 0.25, target=lavapipe), aiter.int8_gemm(x, w, 0.5, 0.25))


H, I8 = np.zeros((4, 8), np.float16), np.zeros((4, 8), np.int8)
REFUSALS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("gemm_relu", (I8, I8), {}, r"'input' must be f32, f16, bf16, but is i8; int8_gemm takes int8"),
    ("gemm_relu", (H, H.astype(F)), {}, r"'input' is f16, but 'weight' is f32; they must be of one dtype"),
    ("gemm_bias", (H, H, I8[0]), {}, r"'bias' must be float, but is i8"),
    ("batched_gemm", (H, H), {}, r"'a' must have 3 axes, but has shape \[4, 8\]"),
    ("batched_gemm", (np.zeros((2, 4, 8), F), np.zeros((3, 8, 4), F)), {}, r"same number of matrices"),
    ("cutlass_gemm", (H, H.T), {"beta": 1.0}, r"beta=1.0 needs the accumulation matrix 'c'"),
    ("int8_gemm", (H, I8, 1.0, 1.0), {}, r"'input' must be i8, but is f16"),
    ("int8_gemm", (I8, H, 1.0, 1.0), {}, r"'weight' must be i8, but is f16"),
    ("int8_gemm", (I8[0], I8, 1.0, 1.0), {}, r"'input' must have 2 axes"),
    ("int8_gemm", (I8, I8[0], 1.0, 1.0), {}, r"'weight' must be \[N, K\], but has shape \[8\]"),
    ("int8_gemm", (I8, I8, np.ones(3, F), 1.0), {}, r"'input_scale' must be one value, \[M\] or \[M, 1\] = \[4, 1\]"),
    ("int8_gemm", (I8, I8, 1.0, 1.0, "int8"), {}, r"output_dtype='int8' is not known"),
    ("int8_gemm", (I8, I8, 1.0, 1.0, "fp8"), {}, r"output_dtype='fp8' is not known"),
    ("grouped_gemm", (H, np.zeros((2, 8, 3), np.float16), np.zeros(4, int)), {}, r"'expert_ids' must be \[T, topk\]"),
    ("grouped_gemm", (H, np.zeros((2, 8, 3), np.float16), np.zeros((4, 2), int), 3), {}, r"topk=3, but 'expert_ids' "
     r"\[4, 2\] names 2 experts"),
    ("grouped_gemm", (H, np.zeros((2, 8, 3), np.float16), np.zeros((4, 2), int)),
     {"combine": False, "routing_weights": np.ones((4, 2), F)}, r"which combine=False leaves out"),
    ("grouped_gemm", (H, np.zeros((2, 8, 3), np.float16), np.zeros((4, 2), F)), {}, r"'expert_ids' must be i32 or i64"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "kw", "message"), REFUSALS)
def test_refusals(name: str, args: Any, kw: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        getattr(aiter, name)(*args, **kw)


def test_operands_that_do_not_meet_are_the_verifiers_matter() -> None:
    with pytest.raises(qmlir.QmlirError, match="K differs"):
        aiter.gemm_relu(H, H[:, :7].copy())
