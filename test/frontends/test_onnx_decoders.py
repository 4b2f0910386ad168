"""Decoders in the form of exports for onnxruntime's generation: grouped-query attention with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.onnx_contrib import KEYS, MICROSOFT, B, D, H, N, S, close, f, model, results, scalar

import qmlir
from conformance.opened import opened
from qmlir.checking.onnxruntime import session

COS, SIN = np.cos(f(32, D // 2)), np.sin(f(32, D // 2))

# ---- grouped-query attention with a cache: (rows, queries, past, last position of each row, more inputs, options)


def grouped(
    rows: int, queries: int, past: int | None, last: Sequence[int], *more: Any, dynamic: bool = False,
    packed: bool = False, **attributes: Any,
) -> tuple[Any, list[Any], list[Any]]:  # fmt: skip
    """qmlir's results, onnxruntime's results, and the last position of each row in the cache."""
    q, k, v = f(rows, queries, H), f(rows, queries, KEYS * D), f(rows, queries, KEYS * D)
    cache: list[Any] = [None, None] if past is None else [f(rows, KEYS, past, D) for _ in range(2)]
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs = [*given, *cache, np.array(last, np.int32), scalar(max(last) + 1), *more]
    state = ("B", "", "P")
    keys = ("", "", "", "T")
    names = {**dict.fromkeys(range(3), ("B", "S")), 3: state, 4: state, 5: ("B",), 10: keys} if dynamic else None
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
    # Regression: the biases of other keys were added.
    "bias-and-long-cache": (1, 3, 12, [9], (*NONE, f(1, 1, 3, 10)), {"dynamic": True}),
    "smooth": (2, 1, 7, [7, 7], (), {"smooth_softmax": 1}),
    "capped": (2, 5, None, [4, 4], (), {"softcap": 5.0}),
    "capped-bias": (2, 1, 7, [7, 7], (*NONE, f(2, N, 1, 8)), {"softcap": 5.0}),
    "several-more": (1, 3, 7, [9], ANGLES, {"do_rotary": 1, "dynamic": True}),
    "long-cache": (1, 3, 12, [9], ANGLES, {"do_rotary": 1}),
    "long-dynamic-cache": (1, 1, 12, [9], ANGLES, {"do_rotary": 1, "dynamic": True}),
}
QUICK = ("first", "bias-and-long-cache", "next-of-two-lengths", "capped", "long-dynamic-cache")


@pytest.mark.sweep(fast=3, slow=3)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in GROUPED])
def test_grouped_queries(name: str) -> None:
    """Keys and values are compared up to each row's last position: after it, the cache may hold anything."""
    rows, queries, past, last, more, options = GROUPED[name]
    got, want, ends = grouped(rows, queries, past, last, *more, **options)
    close(got[0], want[0])
    for g, w in zip(got[1:], want[1:], strict=True):
        assert g.shape == w.shape
        for b, end in enumerate(ends):
            close(g[b, :, : end + 1], w[b, :, : end + 1])


@pytest.mark.sweep(fast=12, slow=60)
@pytest.mark.parametrize(("past", "queries", "total", "last", "message"), [
    (7, 1, 10, [9, 9], "total_sequence_length is neither"),
    (7, 3, 8, [7, 7], "total_sequence_length is neither"),
    (12, 1, 5, [20, 4], "seqlens_k of a row is not a position in the cache"),
    (7, 2, 3, [2, -5], "seqlens_k of a row is not a position in the cache"),
    (7, 1, 8, [7, 8], "seqlens_k of a row is not a position in the cache"),
])  # fmt: skip
@pytest.mark.parametrize("dynamic", [True, False])
def test_lengths_that_do_not_fit_the_cache(
    past: int, queries: int, total: int, last: list[int], message: str, dynamic: bool
) -> None:
    """Regression: keys that were never written were read. onnxruntime refuses these lengths too."""
    q, k = f(2, queries, H), f(2, queries, KEYS * D)
    cache = f(2, KEYS, past, D)
    inputs = [q, k, k, cache, cache, np.array(last, np.int32), scalar(total)]
    state = ("B", "", "P")
    names = {**dict.fromkeys(range(3), ("B", "S")), 3: state, 4: state, 5: ("B",)} if dynamic else None
    made = model("GroupQueryAttention", inputs, outs=(0, 1, 2), names=names, num_heads=N, kv_num_heads=KEYS)
    with pytest.raises(qmlir.errors.InputError, match=f"GroupQueryAttention: {message}"):
        opened(qmlir.compile(made)).main(*inputs)


@pytest.mark.parametrize("count", [7, 12])
def test_a_bias_of_other_keys(count: int) -> None:
    """The bias must have total_sequence_length keys, as in onnxruntime, however many the cache has."""
    q, k, cache = f(1, 1, H), f(1, 1, KEYS * D), f(1, KEYS, 12, D)
    inputs = [q, k, k, cache, cache, np.array([9], np.int32), scalar(10), *NONE, f(1, 1, 1, count)]
    made = model("GroupQueryAttention", inputs, names={10: ("", "", "", "T")}, num_heads=N, kv_num_heads=KEYS)
    with pytest.raises(
        qmlir.errors.InputError, match="the last axis of attention_bias must have the size total_sequence_length"
    ):
        opened(qmlir.compile(made)).main(*(x for x in inputs if x is not None))


def test_normalised_heads() -> None:
    """Compared with their definition: onnxruntime takes the norms' weights on CUDA only."""

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


# ---- a decoder in the form of exports for onnxruntime's generation

LAYERS = 2


def decoder() -> Any:
    """Embeddings, then layers that each have attention with a cache and a gated product of 4-bit weights. Batch,
    queries and past are dynamic."""
    width, hidden, block = 64, 128, 32
    heads, keys = 4, 2
    each = width // heads
    rng = np.random.default_rng(1)
    constants: dict[str, Any] = {
        "table": rng.standard_normal((97, width)).astype(np.float32),
        "cos": np.cos(rng.standard_normal((64, each // 2))).astype(np.float32),
        "sin": np.sin(rng.standard_normal((64, each // 2))).astype(np.float32),
        "one": np.array([1], np.int64), "at_one": np.array(1, np.int64),
    }  # fmt: skip
    nodes: list[Any] = []

    def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> None:
        nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes))

    def weight(name: str, *shape: int) -> str:
        constants[name] = 1 + rng.standard_normal(shape).astype(np.float32) / 10
        return name

    def product(x: str, n: int, k: int, out: str) -> str:
        constants[f"{out}.w"] = rng.integers(0, 256, (n, k // block, block // 2)).astype(np.uint8)
        constants[f"{out}.s"] = (rng.random(n * k // block) / 50 + 0.005).astype(np.float32)
        node("MatMulNBits", [x, f"{out}.w", f"{out}.s"], [out], MICROSOFT, K=k, N=n, bits=4, block_size=block)
        return out

    node("ReduceSum", ["mask", "one"], ["lengths"], keepdims=0)
    node("Sub", ["lengths", "one"], ["last"])
    node("Cast", ["last"], ["seqlens"], to=onnx.TensorProto.INT32)
    node("Shape", ["mask"], ["mask_shape"])
    node("Gather", ["mask_shape", "at_one"], ["total64"], axis=0)
    node("Cast", ["total64"], ["total"], to=onnx.TensorProto.INT32)
    node("Gather", ["table", "ids"], ["x"], axis=0)
    weight("norm", width)
    node("SimplifiedLayerNormalization", ["x", "norm"], ["n0"], epsilon=1e-6, axis=-1, stash_type=1)
    x, n = "x", "n0"
    outputs = []
    for i in range(LAYERS):
        qkv = product(n, width + 2 * keys * each, width, f"qkv{i}")
        present = [f"present_{i}.{kind}" for kind in ("key", "value")]
        node("GroupQueryAttention", [qkv, "", "", f"past_{i}.key", f"past_{i}.value", "seqlens", "total", "cos", "sin"],
             [f"a{i}", *present], MICROSOFT, num_heads=heads, kv_num_heads=keys, do_rotary=1)  # fmt: skip
        outputs += present
        o = product(f"a{i}", width, width, f"o{i}")
        node("SkipSimplifiedLayerNormalization", [x, o, weight(f"w{i}", width)], [f"m{i}", "", "", f"y{i}"], MICROSOFT,
             epsilon=1e-6)  # fmt: skip
        gate, up = (product(f"m{i}", hidden, width, f"{kind}{i}") for kind in ("gate", "up"))
        node("Sigmoid", [gate], [f"s{i}"])
        node("Mul", [gate, f"s{i}"], [f"silu{i}"])
        node("Mul", [f"silu{i}", up], [f"g{i}"])
        down = product(f"g{i}", width, hidden, f"d{i}")
        x, n = f"x{i}", f"n{i + 1}"
        made = [n] if i == LAYERS - 1 else [n, "", "", x]
        node("SkipSimplifiedLayerNormalization", [f"y{i}", down, weight(f"v{i}", width)], made, MICROSOFT, epsilon=1e-6)
    product(n, 97, width, "logits")
    kinds = onnx.TensorProto
    state = ["B", keys, "P", each]
    inputs = [helper.make_tensor_value_info("ids", kinds.INT64, ["B", "S"]),
              helper.make_tensor_value_info("mask", kinds.INT64, ["B", "T"])]  # fmt: skip
    inputs += [helper.make_tensor_value_info(f"past_{i}.{kind}", kinds.FLOAT, state)
               for i in range(LAYERS) for kind in ("key", "value")]  # fmt: skip
    results = [helper.make_tensor_value_info("logits", kinds.FLOAT, ["B", "S", 97])]
    results += [helper.make_tensor_value_info(name, kinds.FLOAT, ["B", keys, "T", each]) for name in outputs]
    graph = helper.make_graph(nodes, "decoder", inputs, results,
                              [numpy_helper.from_array(a, name) for name, a in constants.items()])  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.slow
def test_a_decoder_on_vulkan(lavapipe: str) -> None:
    """No tensor may be empty on Vulkan, so the first cache has one unused position."""
    decoded(lavapipe, 1)


@pytest.mark.slow
def test_a_decoder_and_its_cache() -> None:
    decoded("cpu", 0)


def decoded(target: str, places: int) -> None:
    """A prompt, then one word at a time: qmlir's results agree with onnxruntime's, each with its own cache."""
    made = decoder()
    peer, main = session(made, threads=1), opened(qmlir.compile(made, target=target)).main
    names = [i.name for i in made.graph.input]
    caches = [[np.zeros((1, 2, n, 16), np.float32)] * (2 * LAYERS) for n in (0, places)]
    ids = np.array([[3, 14, 15, 92, 65]])
    for step in range(4):
        mask = np.ones((1, 5 + step), np.int64)
        want = peer.run(None, dict(zip(names, [ids, mask, *caches[0]], strict=True)))
        got = main(ids, mask, *caches[1])
        for g, w in zip(got, want, strict=True):
            close(g, w)
        caches = [list(want[1:]), list(got[1:])]
        ids = want[0][:, -1:].argmax(-1)
