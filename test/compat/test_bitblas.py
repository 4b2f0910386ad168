"""qmlir.compat.bitblas: weights and zeros as BitBLAS stores them, products against float64, golden results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qmlir
from qmlir.compat.bitblas import Matmul, MatmulConfig
from qmlir.errors import UsageError

F, H = np.float32, np.float16
N, K, G = 24, 64, 32


def config(**kw: Any) -> MatmulConfig:
    return MatmulConfig(**{"N": N, "K": K, **kw})


def exact(x: Any) -> Any:
    return x.astype(np.float64)


def sizes(a: Any, w: Any) -> Any:
    return a.shape[-1] * (np.abs(exact(a)) @ np.abs(exact(w)).T)


def quantised(data: Any, bits: int = 4) -> tuple[Any, Any, Any, Any]:
    """Activations, codes, scales, and zeros that are integers."""
    a = data.floats(5, K).astype(H)
    q = data.rng.integers(0, 1 << bits, (N, K)).astype(np.int8)
    scale = (data.rng.random((N, K // G)) * 0.01 + 0.001).astype(H)
    return a, q, scale, data.rng.integers(0, 1 << bits, (N, K // G))


def in_groups(x: Any) -> Any:
    return np.repeat(x, G, 1)


def grouped(**kw: Any) -> MatmulConfig:
    return config(W_dtype="uint4", group_size=G, with_scaling=True, with_zeros=True, **kw)


def test_defaults_are_those_of_bitblas() -> None:
    c = config()
    assert (c.A_dtype, c.W_dtype, c.out_dtype, c.accum_dtype) == ("float16",) * 4
    assert (c.layout, c.group_size, c.zeros_mode, c.storage_dtype) == ("nt", -1, "original", "int8")
    assert (c.with_bias, c.with_scaling, c.with_zeros) == (False, False, False)
    assert c.M == (1, 16, 32, 64, 128, 256, 512, 1024)
    # The quick start passes None for options that are not used.
    assert config(group_size=None, zeros_mode=None, with_scaling=None) == c
    assert len({c, config()}) == 1


def test_original_zeros(data: Any, near: Callable[..., None], same: Callable[..., None]) -> None:
    a, q, scale, zeros = quantised(data)
    matmul = Matmul(grouped())
    packed = matmul.transform_weight(q)
    assert (packed.dtype, packed.shape) == (np.int8, (N, K // 2))
    same(packed.view(np.uint8)[:, 0], (q[:, 0] | q[:, 1] << 4).astype(np.uint8))  # low nibble first
    got = matmul(a, packed, scale=scale, zeros=zeros.astype(H))
    w = ((q - in_groups(zeros)) * exact(in_groups(scale))).astype(H)  # exact in f64, rounded once to A_dtype
    near(got, exact(a) @ exact(w).T, sizes(a, w))
    assert got.dtype == H
    spelled = qmlir.reference.scaled_matmul(
        a, q.astype(np.uint8), rhs_dtype="u4", rhs_transposed=True, rhs_scale=scale,
        rhs_zero_point=zeros.astype(np.int32), rhs_zero_mode="int", out_dtype="f16",
    )  # fmt: skip
    near(got, exact(spelled), sizes(a, w))
    # Zero points that are not integers compile another program, for the same formula.
    fractions = zeros + data.rng.choice([0.25, 0.5, 0.75], zeros.shape)
    got = matmul(a, packed, scale=scale, zeros=fractions.astype(H))
    w = ((q - in_groups(fractions)) * exact(in_groups(scale))).astype(F).astype(H)
    near(got, exact(a) @ exact(w).T, 2 * sizes(a, w))
    assert matmul.N == N
    assert "uint4" in repr(matmul)


def test_leading_axes_and_output(data: Any, same: Callable[..., None]) -> None:
    a, q, scale, zeros = quantised(data)
    matmul = Matmul(grouped())
    args = matmul.transform_weight(q, scale, zeros)
    assert [type(x) for x in args] == [np.ndarray] * 3
    flat = matmul(a, *args)
    same(matmul(a[None], *args), flat[None])
    out = np.empty((5, N), H)
    assert matmul(a, *args, output=out) is out
    same(out, flat)
    assert matmul(a[:0], *args).shape == (0, N)


def test_rescale_and_quantized_zeros(data: Any, near: Callable[..., None], same: Callable[..., None]) -> None:
    a, q, scale, zeros = quantised(data)
    matmul = Matmul(grouped(zeros_mode="rescale"))
    shift = (data.rng.random(scale.shape) * 0.1).astype(H)
    got = matmul(a, matmul.transform_weight(q), scale=scale, zeros=shift)
    w = (q * exact(in_groups(scale)) - exact(in_groups(shift))).astype(F).astype(H)
    near(got, exact(a) @ exact(w).T, 2 * sizes(a, w))
    # quantized: the zeros are packed along N, and have the meaning of original zeros.
    plain, packed = Matmul(grouped()), Matmul(grouped(zeros_mode="quantized"))
    columns = zeros.T.astype(np.uint8)
    stored = (columns[:, ::2] | columns[:, 1::2] << 4).view(np.int8)
    weight = plain.transform_weight(q)
    same(packed(a, weight, scale=scale, zeros=stored), plain(a, weight, scale=scale, zeros=zeros.astype(H)))


@pytest.mark.parametrize(
    ("w_dtype", "lo", "hi"),
    [("int4", -8, 8), pytest.param("int2", -2, 2, marks=pytest.mark.slow), ("int1", 0, 2)],
)
def test_signed_codes_with_integer_activations(
    w_dtype: str, lo: int, hi: int, data: Any, same: Callable[..., None]
) -> None:
    a, w = data.codes(6, K), data.rng.integers(lo, hi, (N, K))
    w = 2 * w - 1 if w_dtype == "int1" else w
    matmul = Matmul(config(A_dtype="int8", W_dtype=w_dtype, accum_dtype="int32", out_dtype="int32"))
    same(matmul(a, matmul.transform_weight(w.astype(np.int8))), (a.astype(np.int64) @ w.T).astype(np.int32))


def test_signed_codes_are_stored_with_an_offset() -> None:
    weight = np.zeros((N, K), np.int8)
    weight[0, :4] = -8, 7, -1, 0
    packed = Matmul(config(W_dtype="int4")).transform_weight(weight).view(np.uint8)
    assert packed[0, :2].tolist() == [0xF0, 0x87]


def test_the_bias_is_added_after_the_cast(data: Any, same: Callable[..., None]) -> None:
    # 2049 is not a float16: cast first, then add, in BitBLAS's order.
    matmul = Matmul(MatmulConfig(M=1, N=1, K=2, W_dtype="int4", with_bias=True))
    a, w = np.array([[2048, 1]], H), np.ones((1, 2), np.int8)
    assert matmul(a, matmul.transform_weight(w), bias=np.ones(1, H))[0, 0] == 2048


def test_fast_decoding_is_another_layout_of_the_same_weight(data: Any, same: Callable[..., None]) -> None:
    a, q, scale, zeros = quantised(data)
    fast, plain = Matmul(grouped(fast_decoding=True)), Matmul(grouped())
    packed = fast.transform_weight(q)
    words = packed.view(np.uint32)
    assert int(words[0, 0]) == sum(int(q[0, i]) << (i % 2 * 16 + i // 2 * 4) for i in range(8))
    same(fast(a, packed, scale=scale, zeros=zeros), plain(a, plain.transform_weight(q), scale=scale, zeros=zeros))


@pytest.mark.slow
@pytest.mark.parametrize("w_dtype", ["nf4", "fp4_e2m1"])
def test_tables(w_dtype: str, data: Any, near: Callable[..., None]) -> None:
    from qmlir.dialect.dtypes import table

    a, q, scale, _ = quantised(data)
    matmul = Matmul(config(W_dtype=w_dtype, group_size=G, with_scaling=True))
    w = (exact(table({"nf4": "nf4", "fp4_e2m1": "e2m1"}[w_dtype])[q]) * exact(in_groups(scale))).astype(F).astype(H)
    near(matmul(a, matmul.transform_weight(q), scale=scale), exact(a) @ exact(w).T, sizes(a, w))


@pytest.mark.slow
@pytest.mark.parametrize("a_dtype", ["float16", "e5m2_float8"])
def test_small_floats(a_dtype: str, data: Any, near: Callable[..., None]) -> None:
    kinds = {"float16": H, "e5m2_float8": ml_dtypes.float8_e5m2}
    a, w = data.floats(5, K).astype(kinds[a_dtype]), data.floats(N, K).astype(ml_dtypes.float8_e4m3fn)
    matmul = Matmul(config(A_dtype=a_dtype, W_dtype="e4m3_float8", accum_dtype="float32"))
    near(matmul(a, matmul.transform_weight(w)), exact(a) @ exact(w).T, sizes(a, w))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_layouts_of_plain_operands(layout: str, data: Any, near: Callable[..., None]) -> None:
    a, w = data.floats(5, K).astype(H), data.floats(N, K).astype(H)
    matmul = Matmul(config(M=5, layout=layout))
    got = matmul(a.T if layout[0] == "t" else a, matmul.transform_weight(w if layout[1] == "t" else w.T))
    near(got, exact(a) @ exact(w).T, sizes(a, w))


@pytest.mark.slow
def test_scaled_integers(data: Any, same: Callable[..., None]) -> None:
    """The request of BitBLAS's issue 28: int8 activations, 4-bit weights with one scale per group."""
    a, w = data.codes(6, K), data.rng.integers(-8, 8, (N, K)).astype(np.int8)
    scale = (2.0 ** -data.rng.integers(3, 8, (N, K // G))).astype(F)
    matmul = Matmul(config(A_dtype="int8", W_dtype="int4", group_size=G, with_scaling=True, out_dtype="float32"))
    got = matmul(a, matmul.transform_weight(w), scale=scale)
    same(got, (a.astype(np.float64) @ (w * exact(in_groups(scale))).T).astype(F))


@pytest.mark.slow
def test_bfloat16_with_one_scale_a_channel(data: Any, near: Callable[..., None]) -> None:
    bf16 = ml_dtypes.bfloat16
    a, w = data.floats(5, K).astype(bf16), data.rng.integers(-8, 8, (N, K)).astype(np.int8)
    scale = (data.rng.random(N) * 0.01).astype(bf16)
    matmul = Matmul(config(A_dtype="bfloat16", W_dtype="int4", with_scaling=True, out_dtype="bfloat16"))
    real = (w * exact(scale)[:, None]).astype(F).astype(bf16)
    near(matmul(a, matmul.transform_weight(w), scale=scale), exact(a) @ exact(real).T, sizes(a, real))


def test_golden_results(golden: Any) -> None:
    s = golden.Stream(60_000)
    a, q = (s((16, 256), -4, 5) / 8).astype(H), s((64, 256), 0, 16).astype(np.int8)
    g, n = np.arange(2)[None], np.arange(64)[:, None]
    matmul = Matmul(MatmulConfig(N=64, K=256, W_dtype="uint4", group_size=128, with_scaling=True, with_zeros=True))
    got = matmul(a, matmul.transform_weight(q), scale=(2.0 ** -(3 + (n + g) % 3)).astype(H),
                 zeros=((3 * n + 5 * g) % 16).astype(H))  # fmt: skip
    assert golden._digest(got) == golden.GOLDEN["qmlir_bitblas_w4a16_g128_original"]["sha256"]
    s = golden.Stream(60_000)
    a, w = s((16, 512), -128, 128).astype(np.int8), (s((64, 512), 0, 16) - 8).astype(np.int8)
    matmul = Matmul(MatmulConfig(M=16, N=64, K=512, A_dtype="int8", W_dtype="int4", out_dtype="int32"))
    got = matmul(a, matmul.transform_weight(w))
    assert golden._digest(got) == golden.GOLDEN["qmlir_bitblas_int8xint4_i32"]["sha256"]


def test_torch_in_torch_out(data: Any) -> None:
    torch = pytest.importorskip("torch")
    a, q, scale, zeros = quantised(data)
    matmul = Matmul(grouped())
    packed = matmul.transform_weight(torch.from_numpy(q))
    assert packed.dtype == torch.int8
    args = torch.from_numpy(scale), torch.from_numpy(zeros).to(torch.float16)
    out = torch.empty((5, N), dtype=torch.float16)
    got = matmul(torch.from_numpy(a), packed, *args, output=out)
    assert got is out
    np.testing.assert_array_equal(out.numpy(), matmul(a, packed.numpy(), scale, zeros))


@pytest.mark.slow
def test_on_lavapipe(lavapipe: str, data: Any, same: Callable[..., None]) -> None:
    a, w = data.codes(6, K), data.rng.integers(-8, 8, (N, K)).astype(np.int8)
    matmul = Matmul(config(A_dtype="int8", W_dtype="int4", out_dtype="int32", M=6), target=lavapipe)
    same(matmul(a, matmul.transform_weight(w)), (a.astype(np.int64) @ w.T).astype(np.int32))


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"N": None}, r"N must be a positive number, but is None"),
    ({"K": 0}, r"K must be a positive number, but is 0"),
    ({"zeros_mode": "rescaled"}, r"zeros_mode='rescaled' is not known; did you mean 'rescale'"),
    ({"W_dtype": "int3"}, r"W_dtype='int3' is not known; did you mean"),
    ({"A_dtype": "fp16"}, r"A_dtype='fp16' is not known"),
    ({"out_dtype": "float"}, r"out_dtype='float' is not known"),
    ({"accum_dtype": "int8"}, r"accum_dtype='int8' is not known"),
    ({"layout": "ntt"}, r"layout='ntt' is not known"),
    ({"storage_dtype": "int32"}, r"storage_dtype='int32' is not known"),
    ({"group_size": 24}, r"group_size=24 does not divide K = 64; -1 means all of K"),
    ({"W_dtype": "int4", "layout": "nn"}, r"layout='nn' is for plain operands; quantised weights take 'nt'"),
    ({"W_dtype": "uint4", "with_zeros": True}, r"with_zeros needs with_scaling"),
    ({"W_dtype": "int4", "with_zeros": True, "with_scaling": True}, r"with_zeros is for unsigned weights, but W_dtype "
     r"is 'int4'"),
    ({"W_dtype": "uint4", "with_zeros": True, "with_scaling": True, "zeros_mode": "quantized", "N": 5},
     r"packs 2 zeros a byte, which N = 5 does not fill"),
    ({"W_dtype": "uint2", "K": 62}, r"uint2 packs 4 codes a byte, which K = 62 does not fill"),
    ({"out_dtype": "int32"}, r"out_dtype='int32' is the raw sum of integers"),
    ({"with_bias": True, "out_dtype": "int8"}, r"with_bias adds to the result's type"),
    ({"propagate_b": True}, r"propagate_b permutes an operand for NVIDIA's ldmatrix; leave it None"),
    ({"W_dtype": "uint2", "fast_decoding": True}, r"fast_decoding interleaves 4-bit weights"),
    ({"A_dtype": "int8", "W_dtype": "int4", "fast_decoding": True}, r"here are int8 x int4 and K = 64"),
]  # fmt: skip


@pytest.mark.parametrize(("kw", "message"), CONFIGS)
def test_config_refusals(kw: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(**kw)


def test_matmul_takes_a_config() -> None:
    with pytest.raises(UsageError, match="Matmul takes a MatmulConfig, but got a dict"):
        Matmul({"N": 1})  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no attribute 'Q'"):
        _ = Matmul(grouped()).Q


def test_weight_refusals() -> None:
    matmul = Matmul(grouped())
    for weight, message in (
        (np.zeros((N, K - 1), np.int8), r"'weight' must have shape \[N, K\] = \[24, 64\], but has \[24, 63\]"),
        (np.zeros((N, K), F), r"'weight' must be i8 or u8 or i32 or i64, but is f32"),
        (np.full((N, K), 16), r"weight\[0, 0\] = 16 is not a code of uint4; they are 0 to 15"),
    ):
        with pytest.raises(UsageError, match=message):
            matmul.transform_weight(weight)
    ones = Matmul(config(A_dtype="int8", W_dtype="int1", accum_dtype="int32", out_dtype="int32"))
    with pytest.raises(UsageError, match=r"weight\[0, 0\] = 0 is not a code of int1; they are -1 and 1"):
        ones.transform_weight(np.zeros((N, K), np.int8))


CALLS: list[tuple[dict[str, Any], str]] = [
    ({"scale": None}, r"the config says with_scaling=True, but 'scale' is missing"),
    ({"bias": np.zeros(N, H)}, r"the config says with_bias=False, but 'bias' is given"),
    ({"A": np.zeros((2, K), F)}, r"'A' is f32, but the config says A_dtype='float16'"),
    ({"A": np.zeros((2, 60), H)}, r"'A' must have any number of rows of K = 64, but has shape \[2, 60\]"),
    ({"A": np.zeros(K, H)}, r"'A' must have at least two axes"),
    ({"W": np.zeros((N, K), np.int8)}, r"'W' must have shape \[N, K\*bits/8\] \(see transform_weight\) = \[24, 32\]"),
    ({"scale": np.zeros(N, H)}, r"'scale' must have shape \[N, K/group_size\] = \[24, 2\], but has \[24\]"),
    ({"zeros": np.zeros((2, N), H)}, r"'zeros' must have shape \[N, K/group_size\] = \[24, 2\]"),
    ({"output": np.zeros((3, N), H)}, r"'output' must have shape \[.., N\] = \[2, 24\]"),
]  # fmt: skip


@pytest.mark.parametrize(("kw", "message"), CALLS)
def test_call_refusals(kw: dict[str, Any], message: str) -> None:
    good = {"A": np.zeros((2, K), H), "W": np.zeros((N, K // 2), np.int8), "scale": np.ones((N, 2), H),
            "zeros": np.zeros((N, 2), H)}  # fmt: skip
    with pytest.raises(UsageError, match=message):
        Matmul(grouped())(**{**good, **kw})


def test_fractional_zeros_need_a_type_whose_products_f32_holds() -> None:
    matmul = Matmul(grouped(A_dtype="float32", out_dtype="float32"))
    a, packed, scale = np.zeros((2, K), F), np.zeros((N, K // 2), np.int8), np.ones((N, 2), F)
    with pytest.raises(UsageError, match=r"'zeros' have fractions.*use zeros_mode='rescale' with zeros \* scale"):
        matmul(a, packed, scale=scale, zeros=np.full((N, 2), 0.5, F))


def test_a_fixed_number_of_rows() -> None:
    matmul = Matmul(MatmulConfig(M=1, N=1, K=2, W_dtype="int4", with_bias=True))
    with pytest.raises(UsageError, match=r"'A' must have 1 rows of K = 2, but has shape \[2, 2\]"):
        matmul(np.zeros((2, 2), H), np.zeros((1, 1), np.int8), bias=np.zeros(1, H))


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
def test_a_target_in_the_place_of_the_name(target: str) -> None:
    with pytest.raises(UsageError, match=f"'name' of Matmul is '{target}', which is a target: pass target='{target}'"):
        Matmul(grouped(), target)
