"""com.microsoft's float operators, which onnxruntime's optimisers and exports of decoders hold, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session
from qmlir.errors import FrontEndError

B, S, L, P, N, KEYS, D, WIDE = 2, 5, 7, 6, 6, 2, 16, 24  # rows, queries, keys, past, heads, heads of keys, width, input
H = N * D
Names = Mapping[int, Sequence[str]]  # of the dynamic sizes of inputs, "" for a static one


class Random:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def below(self, most: int, *shape: int) -> Any:
        return self.rng.integers(0, most, shape).astype(np.int32)


f = Random()


def scalar(value: float, dtype: Any = np.int32) -> Any:
    return np.asarray(value, dtype)


Case = tuple[str, list[Any], dict[str, Any]]


def case(op: str, *inputs: Any, **more: Any) -> Case:
    return op, list(inputs), more


def model(
    op: str, inputs: Sequence[Any], *, outs: Sequence[int] = (0,), opset: int = 17, domain: str = "com.microsoft",
    names: Names | None = None, constant: Sequence[int] = (), **attributes: Any,
) -> Any:  # fmt: skip
    """One node; `outs`: the results that are asked for, `constant`: the inputs that are."""
    outputs = [f"o{i}" if i in outs else "" for i in range(max(outs) + 1)]
    given = [f"i{i}" if a is not None else "" for i, a in enumerate(inputs)]
    node = helper.make_node(op, given, outputs, name=op, domain=domain, **attributes)

    def shape(i: int, a: Any) -> list[Any]:
        said = [*(names or {}).get(i, ()), *[""] * a.ndim]
        return [name or size for name, size in zip(said, a.shape, strict=False)]

    there = [(i, a) for i, a in enumerate(inputs) if a is not None]
    graph = helper.make_graph(
        [node], "graph",
        [helper.make_tensor_value_info(f"i{i}", helper.np_dtype_to_tensor_dtype(a.dtype), shape(i, a))
         for i, a in there if i not in constant],
        [helper.make_empty_tensor_value_info(o) for o in outputs if o],
        [numpy_helper.from_array(a, f"i{i}") for i, a in there if i in constant],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def results(op: str, inputs: list[Any], more: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Ours and onnxruntime's."""
    made = model(op, inputs, **more)
    feed = {f"i{i}": a for i, a in enumerate(inputs) if a is not None and i not in more.get("constant", ())}
    want = session(made, threads=1).run(None, feed)
    got = opened(qmlir.compile(made)).main(*feed.values())
    return list(got) if isinstance(got, (list, tuple)) else [got], want


def close(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5 * max(1.0, float(np.abs(want).max(initial=0))))


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


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_operator(name: str) -> None:
    got, want = results(*({**FAST, **SLOW}[name]))
    for g, w in zip(got, want, strict=True):
        close(g, w)


# ---- grouped queries with a cache: (rows, queries, past, last place of each row, longest row)


def grouped(
    rows: int, queries: int, past: int | None, last: Sequence[int], *more: Any, dynamic: bool = False,
    packed: bool = False, **attributes: Any,
) -> tuple[Any, list[Any], list[Any]]:  # fmt: skip
    """Our results and onnxruntime's, and the keys that are there."""
    q, k, v = f(rows, queries, H), f(rows, queries, KEYS * D), f(rows, queries, KEYS * D)
    cache: list[Any] = [None, None] if past is None else [f(rows, KEYS, past, D) for _ in range(2)]
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs = [*given, *cache, np.array(last, np.int32), scalar(max(last) + 1), *more]
    state = ("B", "", "P")
    names = {**dict.fromkeys(range(3), ("B", "S")), 3: state, 4: state, 5: ("B",)} if dynamic else None
    options = {"outs": (0, 1, 2), "names": names, "num_heads": N, "kv_num_heads": KEYS, **attributes}
    return (*results("GroupQueryAttention", inputs, options), list(last))  # type: ignore[return-value]


ANGLES = (COS, SIN)
NONE = (None, None, None)
GROUPED: dict[str, tuple[Any, ...]] = {
    "prompt": (2, 5, None, [4, 4], ANGLES, {"do_rotary": 1, "packed": True, "rotary_interleaved": 1}),
    "first": (2, 5, 0, [4, 4], ANGLES, {"do_rotary": 1, "dynamic": True}),
    "next-of-two-lengths": (2, 1, 7, [7, 4], ANGLES, {"do_rotary": 1, "dynamic": True}),
    "next": (2, 1, 7, [7, 7], (), {}),
    "window": (2, 1, 7, [7, 7], (), {"local_window_size": 3}),
    "window-of-a-prompt": (2, 5, None, [4, 4], (), {"local_window_size": 3}),
    "bias": (2, 1, 7, [7, 7], (*NONE, f(2, N, 1, 8)), {}),
    "sink": (2, 1, 7, [7, 7], (*NONE, None, f(N)), {}),
    "bias-and-sink": (2, 1, 7, [7, 7], (*NONE, f(1, 1, 1, 8), f(N)), {"dynamic": True}),
    "smooth": (2, 1, 7, [7, 7], (), {"smooth_softmax": 1}),
    "capped": (2, 5, None, [4, 4], (), {"softcap": 5.0}),
    "capped-bias": (2, 1, 7, [7, 7], (*NONE, f(2, N, 1, 8)), {"softcap": 5.0}),
    "several-more": (1, 3, 7, [9], ANGLES, {"do_rotary": 1, "dynamic": True}),
    "long-cache": (1, 3, 12, [9], ANGLES, {"do_rotary": 1}),
    "long-dynamic-cache": (1, 1, 12, [9], ANGLES, {"do_rotary": 1, "dynamic": True}),
}
QUICK = ("first", "next-of-two-lengths", "capped", "long-dynamic-cache")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in GROUPED])
def test_grouped_queries(name: str) -> None:
    """Behind the keys that are there, a cache holds what it may."""
    rows, queries, past, last, more, options = GROUPED[name]
    got, want, ends = grouped(rows, queries, past, last, *more, **options)
    close(got[0], want[0])
    for g, w in zip(got[1:], want[1:], strict=True):
        assert g.shape == w.shape
        for b, end in enumerate(ends):
            close(g[b, :, : end + 1], w[b, :, : end + 1])


# ---- what onnxruntime's CPU does not run


def test_packed_heads() -> None:
    q, k, v = f(B, S, N, D), f(B, S, N, D), f(B, S, N, D)
    apart = [t.reshape(B, S, H) for t in (q, k, v)]
    [want] = session(model("MultiHeadAttention", apart, num_heads=N), threads=1).run(
        None, {f"i{i}": t for i, t in enumerate(apart)}
    )
    for inputs in ([np.stack([q, k, v], 3)], [apart[0], np.stack([k, v], 3)]):
        made = model("MultiHeadAttention", inputs, num_heads=N)
        close(opened(qmlir.compile(made)).main(*inputs), want)


def test_normalised_heads() -> None:
    """By their definition: onnxruntime takes the weights on CUDA only."""

    def rms(t: Any, w: Any) -> Any:
        heads = t.reshape(*t.shape[:2], -1, D).astype(np.float64)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6) * w).reshape(t.shape).astype(np.float32)

    q, k, v, wq, wk = f(B, S, H), f(B, S, KEYS * D), f(B, S, KEYS * D), f(D), f(D)
    rest = [None, None, np.full(B, S - 1, np.int32), scalar(S)]
    options = {"num_heads": N, "kv_num_heads": KEYS}
    plain = [rms(q, wq), rms(k, wk), v, *rest]
    [want] = session(model("GroupQueryAttention", plain, **options), threads=1).run(
        None, {f"i{i}": t for i, t in enumerate(plain) if t is not None}
    )
    inputs = [q, k, v, *rest, *[None] * 7, wq, wk]
    made = model("GroupQueryAttention", inputs, **options)
    close(opened(qmlir.compile(made)).main(*[t for t in inputs if t is not None]), want)


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
    (case("GroupQueryAttention", Q, K, V, None, None, LENGTHS, scalar(S), num_heads=5, kv_num_heads=2),
     "num_heads 5 is no multiple of kv_num_heads 2"),
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
    """A reshape behind an operator that the onnx package does not know needs the names of its sizes."""
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
