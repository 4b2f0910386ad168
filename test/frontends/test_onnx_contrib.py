"""Float operators of the com.microsoft domain, which onnxruntime's optimisers and decoder exports use: against
onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from support.onnx_contrib import WIDE, B, Case, D, H, L, N, Names, P, S, case, close, f, model, results, scalar

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError

TOKENS: Names = {0: ("B", "S")}
BOTH: Names = {0: ("B", "S"), 1: ("B", "S")}
X, SKIP, ROW = f(B, S, WIDE), f(B, S, WIDE), f(WIDE)
IDS = f.below(50, B, S)
FLAGS = np.array([[1] * S, [1, 1] + [0] * (S - 2)], np.int32)
LENGTHS, ENDS = np.array([S, 3], np.int32), np.array([S, 3, 1, 0], np.int32)
NARROW = 2 * H + N * 4
W, WB = f(WIDE, 3 * H) / 4, f(3 * H)
STATE = f(2, B, N, P, D)
CODES, CODED = f.rng.integers(0, 255, (B, S, WIDE)).astype(np.uint8), f.rng.integers(-127, 127, (WIDE, 3 * H))
CODED = CODED.astype(np.int8)
SCALE, HALF = np.asarray(0.02, np.float32), np.asarray(0.01, np.float32)
Q, K, V = f(B, S, H), f(B, L, H), f(B, L, H)
PAST = [f(B, N, P, D), f(B, N, P, D)]
QUERIES: Names = {0: ("B", "S"), 1: ("B", "L"), 2: ("B", "L")}
COS, SIN = np.cos(f(32, D // 2)), np.sin(f(32, D // 2))
PLACES = f.rng.integers(0, 20, (B, S))


def encoder(*inputs: Any, **more: Any) -> Case:
    return case("Attention", X, W, WB, *inputs, num_heads=N, constant=(1, 2), **more)


def several(*inputs: Any, **more: Any) -> Case:
    return case("MultiHeadAttention", *inputs, num_heads=N, **more)


FAST: dict[str, Case] = {
    "bias-gelu": case("BiasGelu", X, ROW, names=TOKENS),
    "skip-layer-norm": case("SkipLayerNormalization", X, SKIP, ROW, f(WIDE), f(WIDE), outs=(0, 3)),
    "skip-rms": case("SkipSimplifiedLayerNormalization", X, SKIP, ROW, outs=(0, 3), names=BOTH),
    "layer-norm-14": case("LayerNormalization", X, ROW, f(WIDE), domain="", opset=14),
    "embeddings": case("EmbedLayerNormalization", IDS, f.below(2, B, S), f(50, WIDE), f(16, WIDE), f(2, WIDE), ROW,
                       f(WIDE), FLAGS, outs=(0, 1), constant=(2, 3, 4, 5, 6), names=BOTH),
    "fused-matmul": case("FusedMatMul", f(2, 4, 5), f(2, 6, 4), transA=1, transB=1, alpha=0.5),
    "fused-gemm": case("FusedGemm", f(5, 4), f(6, 4), f(6), transB=1, activation="LeakyRelu", activation_alpha=0.3),
    "fused-conv": case("FusedConv", f(1, 3, 9, 9), f(8, 3, 3, 3), f(8), f(1, 8, 9, 9), activation="Clip",
                       activation_params=[0.0, 6.0], pads=[1, 1, 1, 1], kernel_shape=[3, 3], constant=(1, 2)),
    "attention-flags": encoder(FLAGS, names={0: ("B", "S"), 3: ("B", "S")}),
    "attention-state": encoder(None, STATE, unidirectional=1, outs=(0, 1),
                               names={0: ("B", "S"), 4: ("", "B", "", "P")}),
    "coded-attention": case("QAttention", CODES, CODED, WB / 8, SCALE, HALF, FLAGS,
                            scalar(120, np.uint8), scalar(0, np.int8), num_heads=N, constant=(1, 2, 7)),
    "heads-state": several(Q, f(B, S, H), f(B, S, H), None, None, None, *PAST, outs=(0, 1, 2),
                           names={**QUERIES, 1: ("B", "S"), 2: ("B", "S"), 6: ("B", "", "P"), 7: ("B", "", "P")}),
    "rotary": case("RotaryEmbedding", Q, PLACES, COS, SIN, names=BOTH),
}  # fmt: skip
SLOW: dict[str, Case] = {
    "gelu": case("Gelu", X),
    "fast-gelu": case("FastGelu", X),
    "fast-gelu-bias": case("FastGelu", X, ROW, names=TOKENS),
    "quick-gelu": case("QuickGelu", X),
    "silu": case("QuickGelu", X, alpha=1.0),
    "skip-of-one-row": case("SkipLayerNormalization", X, f(1, S, WIDE), ROW, None, f(WIDE), epsilon=1e-5),
    "skip-without-batch": case("SkipLayerNormalization", X, f(S, WIDE), ROW, f(WIDE)),
    "skip-rms-bias": case("SkipSimplifiedLayerNormalization", X, SKIP, ROW, f(WIDE), epsilon=1e-6),
    "rms": case("SimplifiedLayerNormalization", X, ROW, domain="", opset=14, names=TOKENS),
    "layer-norm-of-two-axes": case("LayerNormalization", X, f(S, WIDE), f(S, WIDE), domain="", opset=14, axis=1),
    "embeddings-plain": case("EmbedLayerNormalization", IDS, None, f(50, WIDE), f(16, WIDE), None, ROW, f(WIDE),
                             outs=(0, 1, 2), constant=(2, 3, 5, 6)),
    "embeddings-places": case("EmbedLayerNormalization", IDS, None, f(50, WIDE), f(16, WIDE), None, ROW, f(WIDE), None,
                              f.below(16, B, S), outs=(0, 1), constant=(2, 3, 5, 6)),
    "transpose-matmul": case("TransposeMatMul", f(2, 5, 4), f(2, 6, 4), transB=1, alpha=2.0),
    "batch-behind": case("FusedMatMul", f(5, 2, 3, 4), f(6, 2, 3, 4), transBatchA=1, transBatchB=1, transB=1),
    "fused-conv-relu": case("FusedConv", f(1, 3, 9, 9), f(8, 3, 3, 3), f(8), activation="Relu", pads=[1, 1, 1, 1],
                            kernel_shape=[3, 3], strides=[2, 2], constant=(1, 2)),
    "fused-conv-hard-sigmoid": case("FusedConv", f(1, 3, 9, 9), f(8, 3, 3, 3), f(8), activation="HardSigmoid",
                                    activation_params=[0.2, 0.5], kernel_shape=[3, 3], constant=(1, 2)),
    "attention": encoder(),
    "attention-lengths": encoder(LENGTHS, names={0: ("B", "S"), 3: ("B",)}, scale=0.2),
    "attention-ends-and-starts": encoder(ENDS),
    "attention-square": encoder(np.maximum(f.below(2, B, S, S), np.eye(S, dtype=np.int32))),
    "attention-causal": encoder(FLAGS, unidirectional=1),
    "attention-bias": encoder(None, None, f(1, N, S, S)),
    "attention-flags-state": encoder(np.ones((B, P + S), np.int32), STATE, unidirectional=1, outs=(0, 1)),
    "attention-narrow-values": case("Attention", X, W[:, :NARROW].copy(), WB[:NARROW].copy(), num_heads=N,
                                    qkv_hidden_sizes=[H, H, N * 4], constant=(1, 2)),
    "coded-attention-columns": case(
        "QAttention", CODES, CODED, WB / 8, SCALE, np.abs(f(3 * H)) / 100, None, scalar(120, np.uint8),
        np.zeros(3 * H, np.int8), STATE, num_heads=N, constant=(1, 2, 4, 7), unidirectional=1, outs=(0, 1)),
    "heads": several(Q, K, V, names=QUERIES),
    "heads-bias": several(Q, K, V, WB),
    "heads-flags": several(Q, K, V, None, np.maximum(f.below(2, B, L), [[1] + [0] * (L - 1)]).astype(np.int32)),
    "heads-lengths": several(Q, K, V, None, np.array([L, 3], np.int32)),
    "heads-mask": several(Q, K, V, None, None, f(B, 1, S, L)),
    "heads-wide-values": several(Q, K, f(B, L, 2 * H)),
    "heads-of-a-state": several(Q, f(B, N, L, D), f(B, N, L, D), WB),
    "heads-causal-state": several(Q, f(B, S, H), f(B, S, H), None, None, None, *PAST, outs=(0, 1, 2), unidirectional=1),
    "heads-present": several(Q, f(B, S, H), f(B, S, H), outs=(0, 1, 2)),
    "rotary-neighbours": case("RotaryEmbedding", Q, PLACES, COS, SIN, interleaved=1),
    "rotary-heads-first": case("RotaryEmbedding", f(B, N, S, D), PLACES, COS, SIN),
    "rotary-from": case("RotaryEmbedding", Q, np.array([3]), COS, SIN, names={0: ("B", "S")}),
    "rotary-part": case("RotaryEmbedding", Q, PLACES, COS[:, :4].copy(), SIN[:, :4].copy(), num_heads=N,
                        rotary_embedding_dim=8, interleaved=1),
}  # fmt: skip


T, WIDTH, EXPERTS = 9, 64, 4  # rows, width of the hidden layer, experts


def codes(*shape: int) -> Any:
    return f.rng.integers(0, 256, shape).astype(np.uint8)


def experts(activation: str, *, bias: bool = True, times: int = 1, **more: Any) -> Case:
    parts = [f(EXPERTS, times * WIDTH, WIDE) / 5, f(EXPERTS, times * WIDTH) if bias else None,
             f(EXPERTS, WIDE, WIDTH) / 5, f(EXPERTS, WIDE) if bias else None]  # fmt: skip
    constant = tuple(range(2, 6))
    return case("MoE", f(T, WIDE), f(T, EXPERTS), *parts, activation_type=activation, constant=constant, k=2, **more)


def coded_experts(bits: int, block: int = 0, zero: bool = False, weights: Any = None, **more: Any) -> Case:
    """SwiGLU of interleaved columns, with quantised weights. onnxruntime's CPU always normalises routing weights."""
    shapes = [(2 * WIDTH, 32), (32, WIDTH)]
    parts: list[Any] = []
    for n, k in shapes:
        scale = (np.abs(f(EXPERTS, n, k // block) if block else f(EXPERTS, n)) / 50).astype(np.float32)
        parts += [codes(EXPERTS, n, k * bits // 8), scale, f(EXPERTS, n)]
    zeros = [codes(EXPERTS, n, k // block * bits // 8) if block else codes(EXPERTS, n * bits // 8) for n, k in shapes]
    parts += [None] * 3 + (zeros if zero else [None, None]) + [None, weights]
    options = {"block_size": block} if block else {}
    return case(
        "QMoE",
        f(T, 32),
        f(T, EXPERTS),
        *parts,
        activation_type="swiglu",
        swiglu_fusion=1,
        k=2,
        expert_weight_bits=bits,
        normalize_routing_weights=1,
        constant=tuple(range(2, 13)),
        **options,
        **more,
    )


EMBEDDED = [codes(50, WIDE), codes(16, WIDE), codes(2, WIDE), codes(WIDE), codes(WIDE)]
FAST |= {
    "experts": experts("swiglu", times=2, swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0,
                       swiglu_limit=7.0),
    "coded-experts": coded_experts(4, 16, zero=True),
    "embeddings-of-codes": case(
        "QEmbedLayerNormalization", IDS, f.below(2, B, S), *EMBEDDED, FLAGS, *[np.asarray(0.02, np.float32)] * 5,
        *[np.asarray(120, np.uint8)] * 5, outs=(0, 1), constant=(*range(2, 7), *range(8, 18)), names=BOTH),
}  # fmt: skip
SLOW |= {
    "experts-silu": experts("silu", normalize_routing_weights=1),
    "experts-gelu": experts("gelu", bias=False),
    "experts-relu": experts("relu"),
    "experts-identity": experts("identity"),
    "coded-experts-columns": coded_experts(4, zero=True),
    "coded-experts-8": coded_experts(8),
    "coded-experts-weights": coded_experts(4, 16, weights=np.abs(f(T, EXPERTS))),
    "nf4": case("MatMulBnb4", X[..., :16].copy(), codes(12 * 16 // 2), np.abs(f(12)), K=16, N=12, block_size=16,
                quant_type=1, constant=(1, 2)),
    "fp4": case("MatMulBnb4", X[..., :16].copy(), codes(12 * 16 // 2), np.abs(f(12)), K=16, N=12, block_size=16,
                quant_type=0, constant=(1, 2), names=TOKENS),
}  # fmt: skip


@pytest.mark.sweep(fast=6, slow=60)
@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_operator(name: str) -> None:
    got, want = results(*({**FAST, **SLOW}[name]))
    for g, w in zip(got, want, strict=True):
        close(g, w)


# ---- operators that onnxruntime's CPU does not run


@pytest.mark.sweep(slow=134)
@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_operator_on_vulkan(name: str, lavapipe: str) -> None:
    got, want = results(*({**FAST, **SLOW}[name]), target=lavapipe)
    for g, w in zip(got, want, strict=True):
        close(g, w)


def test_packed_heads() -> None:
    q, k, v = f(B, S, N, D), f(B, S, N, D), f(B, S, N, D)
    apart = [t.reshape(B, S, H) for t in (q, k, v)]
    [want] = session(model("MultiHeadAttention", apart, num_heads=N), threads=1).run(
        None, {f"i{i}": t for i, t in enumerate(apart)}
    )
    for inputs in ([np.stack([q, k, v], 3)], [apart[0], np.stack([k, v], 3)]):
        made = model("MultiHeadAttention", inputs, num_heads=N)
        close(opened(qmlir.compile(made)).main(*inputs), want)


# ---- refused


@pytest.mark.parametrize(("refused", "message"), [
    (case("SkipLayerNormalization", X, SKIP, ROW, outs=(0, 1)), "result 1 of .*SkipLayerNormalization.*for training"),
    (encoder(do_rotary=1), "Attention with do_rotary = 1 is not imported"),
    (case("Attention", X, W, WB, constant=(1, 2)), "num_heads is 0, which must be positive"),
    (case("Attention", X, W, WB, np.ones((B, 1, 9, 9), np.int32), num_heads=N), "a mask .*1.*9.*9"),
    (several(Q, K, V, outs=(0, 3)), "the result qk of .*MultiHeadAttention is not imported"),
    (several(Q), "without keys or values"),
    (case("RotaryEmbedding", Q, PLACES, COS, SIN, scale=2.0), "RotaryEmbedding with a scale"),
    (case("FusedConv", f(1, 3, 9, 9), f(8, 3, 3, 3), activation="Mish"), "the activation 'Mish'; Clip, Elu"),
    (case("QMoE", f(T, 32), f(T, EXPERTS), codes(EXPERTS, WIDTH, 16), None, None, codes(EXPERTS, 32, WIDTH // 2),
          quant_type="fp4", constant=(2, 5)), "QMoE with quant_type 'fp4'"),
    (experts("mish"), "the activation 'mish'; relu, gelu, silu, identity and swiglu"),
    (case("GroupQueryAttention", Q, K, V, None, None, LENGTHS, scalar(S), num_heads=5, kv_num_heads=2),
     "num_heads 5 is not a multiple of kv_num_heads 2"),
], ids=lambda x: x if isinstance(x, str) else x[0])  # fmt: skip
def test_refused(refused: Case, message: str) -> None:
    op, inputs, more = refused
    with pytest.raises(FrontEndError, match=message) as e:
        qmlir.compile(model(op, inputs, **more))
    assert op in str(e.value)


def test_words_without_a_position() -> None:
    ids = f.below(50, 1, 4)
    made = model("EmbedLayerNormalization", [ids, None, f(50, WIDE), f(4, WIDE), None, ROW, ROW], constant=(2, 3, 5, 6),
                 names={0: ("", "S")})  # fmt: skip
    main = opened(qmlir.compile(made)).main
    assert main(ids).shape == (1, 4, WIDE)
    with pytest.raises(qmlir.errors.QmlirError, match="more words than the table of positions has rows"):
        main(f.below(50, 1, 5))


def test_names_of_sizes_go_through() -> None:
    """A Reshape needs the names of dynamic sizes, which pass through an operator that the onnx package doesn't know."""
    text = """
        <ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        graph (float[B, S, 24] x, float[24] w) => (float[rows, 24] y) {
            shape = Constant<value = int64[2] {-1, 24}>()
            n = com.microsoft.SkipSimplifiedLayerNormalization(x, x, w)
            m = Neg(n)
            y = Reshape(m, shape)
        }
    """
    made = onnx.parser.parse_model(text)
    inputs = {"x": X, "w": ROW}
    [want] = session(made, threads=1).run(None, inputs)
    artifact = qmlir.compile(made)
    close(opened(artifact).main(X, ROW), want)
