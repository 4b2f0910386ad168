"""Mixture-of-experts layers against the reference, on every target that runs here: the router, the block-aligned
sort, the layer, and all three as one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.cover import others_slow

import qmlir
from qmlir import InputError, TensorSpec
from qmlir.dialect.dtypes import from_numpy
from qmlir.errors import VerifyError

pytestmark = pytest.mark.sweep(fast=3, slow=40)

R = qmlir.reference
E, H, F, N = 5, 48, 40, 24


def _ids(data: Any, tokens: int, topk: int, experts: int = E) -> Any:
    """Different experts for each token; no token is routed to expert 3."""
    rows = [data.rng.permutation([e for e in range(experts) if e != 3])[:topk] for _ in range(tokens)]
    return np.array(rows, np.int32).reshape(tokens, topk)


def _layer(data: Any, tokens: int = 19, topk: int = 2, gated: bool = False) -> dict[str, Any]:
    width = 2 * F if gated else F
    return {
        "input": data.codes(tokens, H), "w1": data.codes(E, H, width), "w2": data.codes(E, F, N),
        "expert_ids": _ids(data, tokens, topk), "routing_weights": data.rng.random((tokens, topk), dtype=np.float32),
        "input_scale": data.scales(tokens, 1), "w1_scale": data.scales(E, 1, width), "w2_scale": data.scales(E, 1, N),
        "activation": "swiglu" if gated else "relu",
    }  # fmt: skip


# Schemes without transcendental functions: every step is one f32 operation or an exact sum, so results are equal.
EXACT: dict[str, dict[str, Any]] = {
    "requantised": {"intermediate_dtype": "i8", "intermediate_scale": np.float32(0.02)},
    "requantised_u8": {"intermediate_dtype": "u8", "intermediate_scale": np.float32(0.02),
                       "intermediate_zero_point": np.int32(3), "rounding": "half_away"},
    "dynamic": {"intermediate_dtype": "i8"},
    "dynamic_asymmetric": {"intermediate_dtype": "u8"},
    "dynamic_fbgemm_f16": {"intermediate_dtype": "i8", "recipe": "fbgemm", "out_dtype": "f16"},
    "weights_first": {"intermediate_dtype": "i8", "routing_stage": "input"},
}  # fmt: skip
QUICK = ("requantised_u8", "dynamic")  # the others are in the slow tier
GATES = ("halves", "interleaved")


@pytest.mark.parametrize(
    ("scheme", "on"),
    [
        pytest.param(s, t, marks=() if s in QUICK else pytest.mark.slow)
        for s in EXACT
        for t in ("cpu", "vulkan:lavapipe")
    ],
)
def test_layer_exactly(scheme: str, on: str, request: pytest.FixtureRequest, data: Any, same: Any) -> None:
    target = on if on == "cpu" else request.getfixturevalue("lavapipe")
    kw = _layer(data) | EXACT[scheme]
    same(qmlir.ops.moe(**kw, target=target), R.moe(**kw))


@pytest.mark.parametrize(("topk", "gate_layout"), others_slow([(k, g) for k in (1, 3) for g in GATES], (3, GATES[1])))
def test_gated_layer(topk: int, gate_layout: str, data: Any) -> None:
    kw = _layer(data, topk=topk, gated=True) | {"gate_layout": gate_layout, "w1_bias": data.floats(E, 2 * F),
                                                "w2_bias": data.floats(N)}  # fmt: skip
    expected = R.moe(**kw)
    # exp differs in the last bit between libraries; K = 40 terms of the second product carry it.
    assert np.allclose(qmlir.ops.moe(**kw), expected, rtol=0, atol=2.0**-20 * np.abs(expected).max())


def test_weight_only_layer(data: Any) -> None:
    """f16 tokens, 4-bit weights packed in groups of K, an f16 intermediate."""
    w1, w2 = (data.codes(E, n, k, dtype="i4") for n, k in ((F, H), (N, F)))
    kw = {
        "input": data.floats(9, H).astype(np.float16), "w1": R.pack(w1, "i4"), "w2": R.pack(w2, "i4"),
        "expert_ids": _ids(data, 9, 2), "routing_weights": data.rng.random((9, 2), dtype=np.float32),
        "w1_scale": data.scales(E, F, H // 8), "w2_scale": data.scales(E, N, F // 8), "weight_dtype": "i4",
        "weight_packing": "low_first", "weights_transposed": True, "activation": "relu", "intermediate_dtype": "f16",
        "out_dtype": "f16",
    }  # fmt: skip
    expected = R.moe(**kw).astype(np.float64)
    actual = qmlir.ops.moe(**kw).astype(np.float64)
    assert np.allclose(actual, expected, rtol=2.0**-9, atol=2.0**-9 * np.abs(expected).max())


@pytest.mark.slow
def test_per_slot_tokens_and_zero_points(data: Any, same: Any) -> None:
    kw = _layer(data) | {"input": data.codes(19, 2, H, dtype="u8"), "input_scale": data.scales(19, 2, 1),
                         "input_zero_point": data.zeros(19, 2, 1, lo=0, hi=256), "w1_zero_point": data.zeros(E, 1, F),
                         "w2_zero_point": data.zeros(E, 1, N), "intermediate_dtype": "i8"}  # fmt: skip
    same(qmlir.ops.moe(**kw), R.moe(**kw))


@pytest.mark.sweep(fast=6, slow=40)
@pytest.mark.parametrize("stage", ["input", "output"])
@pytest.mark.parametrize("own", [(4, 1), (2, 1), (2, 2, 1)], ids=str)
def test_scales_of_several_tokens(own: tuple[int, ...], stage: str, data: Any, same: Any) -> None:
    """Regression: with `routing_stage = input` they did not compile; otherwise each was taken for one token's."""
    per_slot = own != (4, 1)
    kw = _layer(data, tokens=8) | {"routing_stage": stage, "intermediate_dtype": "i8", "input_scale": data.scales(*own)}
    if per_slot:
        kw["input"] = data.codes(8, 2, H)
    whole = np.repeat(kw["input_scale"], 8 // own[0], 0) if own != (2, 1) else kw["input_scale"][None]
    expected = R.moe(**kw | {"input_scale": np.broadcast_to(whole, (*kw["input"].shape[:-1], 1)).copy()})
    same(R.moe(**kw), expected)
    same(qmlir.ops.moe(**kw), expected)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [0, 1, 300])
def test_dynamic_tokens(tokens: int, data: Any, same: Any) -> None:
    """One program for any number of tokens."""
    kw = _layer(data, tokens=tokens) | EXACT["dynamic"]
    specs = {n: TensorSpec(v.shape, from_numpy(v.dtype)) if isinstance(v, np.ndarray) else v for n, v in kw.items()}
    for name in ("input", "expert_ids", "routing_weights", "input_scale"):
        specs[name] = TensorSpec((None, *specs[name].shape[1:]), specs[name].dtype)
    function = qmlir.load(qmlir.ops.moe.compile(**specs)).main
    same(function(*[kw[name] for name, _ in function.signature.inputs]), R.moe(**kw))


def test_one_token(target: str, data: Any, same: Any) -> None:
    """Regression: the row, which all blocks read, was fused into the product, and its unrolling over K took minutes."""
    width = 4096
    kw = _layer(data, tokens=1, topk=4) | EXACT["dynamic"]
    kw |= {"input": data.codes(1, width), "w1": data.codes(E, width, F)}
    same(qmlir.ops.moe(**kw, target=target), R.moe(**kw))


@pytest.mark.slow
def test_an_id_out_of_range_is_named_or_skipped(target: str, data: Any, same: Any) -> None:
    kw = _layer(data) | EXACT["dynamic"]
    kw["expert_ids"][7, 1], kw["expert_ids"][11, 0] = E, -1
    with pytest.raises(InputError, match=rf"expert_ids\[7, 1\] = {E} is outside \[0, {E}\)"):
        qmlir.ops.moe(**kw, target=target)
    same(qmlir.ops.moe(**kw, skip_invalid=True, target=target), R.moe(**kw, skip_invalid=True))


def test_a_wide_id_does_not_wrap(data: Any) -> None:
    """2^32 is not a valid id, although its low 32 bits are."""
    kw = _layer(data)
    kw["expert_ids"] = kw["expert_ids"].astype(np.int64)
    kw["expert_ids"][2, 0] = 2**32
    with pytest.raises(InputError, match=r"expert_ids\[2, 0\] = 4294967296 is outside"):
        qmlir.ops.moe(**kw)


def test_message_names_the_operand(data: Any) -> None:
    kw = _layer(data) | {"w2_scale": data.scales(3, 1, N)}
    with pytest.raises(VerifyError, match="'w2_scale' has shape"):
        qmlir.ops.moe(**kw)


# ----------------------------------------------------------------------------------------------------- router


@pytest.mark.sweep(fast=9, slow=40)
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("experts", "topk", "dtype"), [(8, 2, np.float32), (64, 6, np.float16), (5, 5, np.float32)])
def test_route(scoring: str, experts: int, topk: int, dtype: Any, target: str, data: Any) -> None:
    logits = (data.floats(33, experts) * 4).astype(dtype)
    logits[3] = logits[3, 0]  # all equal: the lowest ids are chosen
    logits[4, 1] = logits[4].max() + 1
    logits[4, 2] = logits[4, 1]
    for renormalize in (False, True):
        kw: dict[str, Any] = {"topk": topk, "scoring": scoring, "renormalize": renormalize}
        ids, weights = qmlir.ops.route(logits, **kw, target=target)
        expected_ids, expected = R.route(logits, **kw)
        assert ids.dtype == np.int32
        assert np.array_equal(ids, expected_ids)
        assert weights.dtype == np.float32
        assert np.allclose(weights, expected, rtol=2.0**-19, atol=2.0**-126)


def test_route_of_infinities_and_nan(target: str) -> None:
    logits = np.array([[np.nan, 1, 2, -np.inf], [-np.inf, -np.inf, 0, np.nan]], np.float32)
    ids, _ = qmlir.ops.route(logits, topk=3, scoring="sigmoid", target=target)
    assert ids.tolist() == R.route(logits, topk=3, scoring="sigmoid")[0].tolist() == [[2, 1, 0], [2, 0, 1]]


# ------------------------------------------------------------------------------------------------------- sort


@pytest.mark.parametrize(
    ("tokens", "topk", "experts", "block"),
    others_slow([(1, 1, 1, 8), (37, 2, 5, 16), (500, 3, 7, 32)], (37, 2, 5, 16)),
)
def test_align_block_size(tokens: int, topk: int, experts: int, block: int, target: str, data: Any) -> None:
    ids = data.rng.integers(0, experts, (tokens, topk)).astype(np.int32)
    actual = qmlir.ops.moe_align_block_size(ids, experts=experts, block_size=block, target=target)
    for a, b in zip(actual, R.moe_align_block_size(ids, experts=experts, block_size=block), strict=True):
        assert np.array_equal(a, b)


def test_align_block_size_dynamically(target: str, data: Any) -> None:
    sort = qmlir.load(
        qmlir.ops.moe_align_block_size.compile(
            TensorSpec((None, 2), "i32"), experts=6, block_size=8, skip_invalid=True, target=target
        )
    ).main
    # The Vulkan driver refuses empty buffers, and qmlir-guard-empty only avoids them if there is a single result.
    for tokens in (0, 1, 65, 400)[target != "cpu" :]:
        ids = data.rng.integers(-1, 7, (tokens, 2)).astype(np.int32)
        expected = R.moe_align_block_size(ids, experts=6, block_size=8, skip_invalid=True)
        for a, b in zip(sort(ids), expected, strict=True):
            assert np.array_equal(a, b)


# -------------------------------------------------------------------------------------------- one whole program


def _program(tokens: int, hidden: int, experts: int, topk: int, inner: int, out: int, activation: str) -> str:
    """Router, dynamic quantisation of the tokens, experts: one function."""
    wide = inner * (2 if activation == "swiglu" else 1)
    x, scores, w, i = (
        f"tensor<{tokens}x{n}x{t}>" for n, t in ((hidden, "f32"), (experts, "f32"), (topk, "f32"), (topk, "i32"))
    )
    w1, w2 = f"tensor<{experts}x{hidden}x{wide}xi8>", f"tensor<{experts}x{inner}x{out}xi8>"
    s1, s2, s = f"tensor<{experts}x1x{wide}xf32>", f"tensor<{experts}x1x{out}xf32>", f"tensor<{tokens}x1xf32>"
    q, y = f"tensor<{tokens}x{hidden}xi8>", f"tensor<{tokens}x{out}xf32>"
    return f"""
func.func @main(%x: {x}, %logits: {scores}, %w1: {w1}, %s1: {s1}, %w2: {w2}, %s2: {s2}) -> {y} {{
  %ids, %weights = "qmlir.route"(%logits) {{topk = {topk} : i64, renormalize = true}} : ({scores}) -> ({i}, {w})
  %q, %s = "qmlir.dynamic_quantize"(%x) : ({x}) -> ({q}, {s})
  %y = "qmlir.moe"(%q, %w1, %w2, %ids, %weights, %s, %s1, %s2) {{
    operand_names = ["input", "w1", "w2", "expert_ids", "routing_weights", "input_scale", "w1_scale", "w2_scale"],
    activation = "{activation}", intermediate_dtype = "i8"
  }} : ({q}, {w1}, {w2}, {i}, {w}, {s}, {s1}, {s2}) -> {y}
  return %y : {y}
}}
"""


# tokens, hidden, experts, top-k, inner, out: AITER's documented layer; Mixtral 8x7B and DeepSeek-V2-Lite with their
# numbers of experts and their proportions, cut to this machine (4096 -> 1024 and 14336 -> 3584; 2048 -> 1024 and
# 1408 -> 704).
LAYERS = {
    "small": (48, 64, 8, 2, 96, 64, "relu"),
    "aiter": (4096, 512, 8, 2, 2048, 2048, "relu"),
    "mixtral": (256, 1024, 8, 2, 3584, 1024, "swiglu"),
    "deepseek": (128, 1024, 64, 6, 704, 1024, "swiglu"),
}


@pytest.mark.parametrize("name", [n if n == "small" else pytest.param(n, marks=pytest.mark.slow) for n in LAYERS])
def test_whole_layer(name: str, data: Any) -> None:
    tokens, hidden, experts, topk, inner, out, activation = LAYERS[name]
    wide = inner * (2 if activation == "swiglu" else 1)
    x, logits = data.floats(tokens, hidden), data.floats(tokens, experts)
    logits[:, 1] = -30  # an expert with no token
    w1, w2 = data.codes(experts, hidden, wide), data.codes(experts, inner, out)
    s1, s2 = data.scales(experts, 1, wide), data.scales(experts, 1, out)
    actual = qmlir.load(qmlir.compile(_program(*LAYERS[name]))).main(x, logits, w1, s1, w2, s2)

    ids, weights = R.route(logits, topk=topk, renormalize=True)
    q, s, _ = R.dynamic_quantize(x)
    kw = {"input_scale": s, "w1_scale": s1, "w2_scale": s2, "activation": activation, "intermediate_dtype": "i8"}
    expected = R.moe(q, w1, w2, ids, weights, **kw)
    # The error of the router's exp moves the weights by 2^-19. That of silu may also move codes of the intermediate by
    # one, at most 0.1 % of them: a code is 1/127 of the row's largest value, and one of `inner` terms.
    error = np.abs(actual.astype(np.float64) - expected) / np.abs(expected).max()
    if activation == "relu":
        assert error.max() <= 2.0**-18
    else:
        assert np.quantile(error, 0.99) <= 2.0**-18
        assert error.max() <= 2.0**-7
