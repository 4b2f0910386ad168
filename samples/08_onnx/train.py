"""A small convolutional network for scikit-learn's digits: forward and backward passes in numpy, and the trained
network as a float ONNX model.

8x8x1 -> conv 16 -> depthwise 16 -> pointwise 16, with a residual -> max pool -> conv 32, stride 2 -> 10 classes
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Array = NDArray[np.float32]
Parameters = dict[str, Array]
EPOCHS, BATCH, RATE = 12, 64, 4e-3


def digits() -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Images `[N, 1, 8, 8]` in 0..1 and labels: those to train on, then the held-out quarter."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    a, b, ya, yb = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)
    return a, ya, b, yb


# ------------------------------------------------------------------------------------------ layers and their gradients


def _windows(x: Array, stride: int) -> list[Array]:
    """The nine shifted views of a padded input that a 3x3 kernel sees, `[N, C, H/stride, W/stride]` each."""
    h, w = x.shape[2], x.shape[3]
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return [p[:, :, i : i + h : stride, j : j + w : stride] for i in range(3) for j in range(3)]


def conv(x: Array, w: Array, b: Array, stride: int = 1) -> Array:
    """A 3x3 convolution with padding 1: x `[N, C, H, W]`, w `[F, C, 3, 3]`."""
    views = np.stack(_windows(x, stride), 2)
    return np.einsum("nckhw,fck->nfhw", views, w.reshape(*w.shape[:2], 9), optimize=True) + b[:, None, None]


def conv_gradients(x: Array, w: Array, g: Array, stride: int = 1) -> tuple[Array, Array, Array]:
    """Gradients of x, w and b from the gradient g of the result."""
    views = np.stack(_windows(x, stride), 2)
    gw = np.einsum("nckhw,nfhw->fck", views, g, optimize=True).reshape(w.shape)
    spread = np.einsum("nfhw,fck->nckhw", g, w.reshape(*w.shape[:2], 9), optimize=True)
    return _gathered(spread, x.shape, stride), gw, g.sum((0, 2, 3))


def depthwise(x: Array, w: Array, b: Array) -> Array:
    """A 3x3 convolution with padding 1 and one filter per channel: w `[C, 1, 3, 3]`."""
    return sum(v * w[:, 0, k // 3, k % 3, None, None] for k, v in enumerate(_windows(x, 1))) + b[:, None, None]


def depthwise_gradients(x: Array, w: Array, g: Array) -> tuple[Array, Array, Array]:
    """As `conv_gradients`."""
    gw = np.stack([(v * g).sum((0, 2, 3)) for v in _windows(x, 1)], 1).reshape(w.shape)
    spread = np.stack([g * w[:, 0, k // 3, k % 3, None, None] for k in range(9)], 2)
    return _gathered(spread, x.shape, 1), gw, g.sum((0, 2, 3))


def _gathered(spread: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The sum of the contributions of the nine views to the input."""
    n, c, h, w = shape
    out = np.zeros((n, c, h + 2, w + 2), np.float32)
    for k in range(9):
        out[:, :, k // 3 : k // 3 + h : stride, k % 3 : k % 3 + w : stride] += spread[:, :, k]
    return out[:, :, 1:-1, 1:-1]


def initial(rng: np.random.Generator) -> Parameters:
    """Initial weights after He et al. 2015 (normal, variance 2 / inputs), and zero biases."""

    def weight(*shape: int) -> Array:
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    made = {"w1": weight(16, 1, 3, 3), "w2": weight(16, 1, 3, 3), "w3": weight(16, 16), "w4": weight(32, 16, 3, 3),
            "w5": weight(10, 128)}  # fmt: skip
    return made | {f"b{i}": np.zeros(len(made[f"w{i}"]), np.float32) for i in range(1, 6)}


def forward(p: Parameters, x: Array) -> tuple[Array, dict[str, Array]]:
    """Logits `[N, 10]` and the values that the gradients need."""
    a1 = np.maximum(conv(x, p["w1"], p["b1"]), 0)
    a2 = np.maximum(depthwise(a1, p["w2"], p["b2"]), 0)
    a3 = np.einsum("nchw,fc->nfhw", a2, p["w3"], optimize=True) + p["b3"][:, None, None] + a1
    n = len(x)
    blocks = a3.reshape(n, 16, 4, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, 16, 4, 4, 4)
    pooled = blocks.max(-1)
    a4 = np.maximum(conv(pooled, p["w4"], p["b4"], 2), 0)
    flat = a4.reshape(n, 128)
    return flat @ p["w5"].T + p["b5"], {"x": x, "a1": a1, "a2": a2, "blocks": blocks, "pooled": pooled, "a4": a4}


def gradients(p: Parameters, kept: dict[str, Array], g: Array) -> Parameters:
    """Gradients of the mean loss, from its gradient `[N, 10]` with respect to the logits."""
    n, a1, a2, a4, pooled = len(g), kept["a1"], kept["a2"], kept["a4"], kept["pooled"]
    out = {"w5": g.T @ a4.reshape(n, 128), "b5": g.sum(0)}
    g4 = (g @ p["w5"]).reshape(a4.shape) * (a4 > 0)
    gp, out["w4"], out["b4"] = conv_gradients(pooled, p["w4"], g4, 2)
    largest = kept["blocks"] == pooled[..., None]
    gb = (largest / largest.sum(-1, keepdims=True) * gp[..., None]).astype(np.float32)
    g3 = gb.reshape(n, 16, 4, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(a1.shape)
    out["w3"], out["b3"] = np.einsum("nfhw,nchw->fc", g3, a2, optimize=True), g3.sum((0, 2, 3))
    g2 = np.einsum("nfhw,fc->nchw", g3, p["w3"], optimize=True) * (a2 > 0)
    g1, out["w2"], out["b2"] = depthwise_gradients(a1, p["w2"], g2)
    _, out["w1"], out["b1"] = conv_gradients(kept["x"], p["w1"], (g1 + g3) * (a1 > 0))
    return out


def train(images: Array, labels: NDArray[np.int64]) -> Parameters:
    """Adam (Kingma and Ba 2015) on the cross entropy; the seed is fixed."""
    rng = np.random.default_rng(0)
    p = initial(rng)
    first, second = ({k: np.zeros_like(v) for k, v in p.items()} for _ in range(2))
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        for at in range(0, len(order), BATCH):
            chosen = order[at : at + BATCH]
            logits, kept = forward(p, images[chosen])
            e = np.exp(logits - logits.max(1, keepdims=True))
            share = e / e.sum(1, keepdims=True)
            share[np.arange(len(chosen)), labels[chosen]] -= 1
            step += 1
            rate = RATE * (1 - epoch / EPOCHS)
            for k, g in gradients(p, kept, share / len(chosen)).items():
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.99 * second[k] + 0.01 * g * g
                p[k] -= rate * (first[k] / (1 - 0.9**step)) / (np.sqrt(second[k] / (1 - 0.99**step)) + 1e-8)
    return {k: v.astype(np.float32) for k, v in p.items()}


def to_onnx(p: Parameters) -> Any:
    """The network as a float `onnx.ModelProto`: `image [N, 1, 8, 8]` to `logits [N, 10]`, N dynamic."""
    weights = {**p, "w3": p["w3"][:, :, None, None]}
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], "conv1", **same),
        helper.make_node("Relu", ["c1"], ["a1"], "relu1"),
        helper.make_node("Conv", ["a1", "w2", "b2"], ["c2"], "depthwise", group=16, **same),
        helper.make_node("Relu", ["c2"], ["a2"], "relu2"),
        helper.make_node("Conv", ["a2", "w3", "b3"], ["c3"], "pointwise", kernel_shape=[1, 1]),
        helper.make_node("Add", ["c3", "a1"], ["a3"], "residual"),
        helper.make_node("MaxPool", ["a3"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pooled", "w4", "b4"], ["c4"], "conv4", strides=[2, 2], **same),
        helper.make_node("Relu", ["c4"], ["a4"], "relu4"),
        helper.make_node("Flatten", ["a4"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w5", "b5"], ["logits"], "classes", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(np.ascontiguousarray(w), name) for name, w in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model
