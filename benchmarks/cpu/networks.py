"""Whole int8 networks as data: convolutions, residual sums, pooling and a final product. qmlir's program and those of
the peers are built from the same data.

Activations between layers follow a relu, so they are u8 codes with zero point 0, or equivalently i8 codes with zero
point -128: the real values are the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .chain import Chain
from .problems import Built, Problem

Array = Any
ZERO = np.int8(-128)


@dataclass(frozen=True)
class Layer:
    """`out = requantise(relu(in_scale * scale[f] * (sum (x - z) * w + bias[f]) + residual))`; weight [F, KH, KW, C]."""

    weight: Array
    scale: Array  # [F] f32
    bias: Array  # [F] i32
    stride: int
    in_scale: np.float32
    out_scale: np.float32
    relu: bool = True

    @property
    def padding(self) -> int:
        return int(self.weight.shape[1]) // 2

    def real_bias(self) -> Array:
        """[F] f32: the bias as real values (`bias * in_scale * scale`)."""
        return self.bias.astype(np.float32) * self.in_scale * self.scale


@dataclass(frozen=True)
class Node:
    """A step: `conv`, `max_pool`, or `average` (over all pixels, which flattens the image). `source` and `residual` are
    indices of nodes; -1 is the network's input."""

    kind: str
    source: int
    layer: Layer | None = None
    residual: int | None = None
    scale: np.float32 | None = None  # of the result


@dataclass(frozen=True)
class Network(Problem):
    """Nodes, then a product of the flattened result with `last` [F, 1, 1, C], which gives real values [N, F]."""

    name: str
    image: Array  # [N, H, W, C] i8 codes
    in_scale: np.float32
    in_zero: np.int8
    nodes: tuple[Node, ...]
    last: Layer

    def identity(self) -> str:
        shapes = [self.image.shape, *(layer.weight.shape for layer in self.layers())]
        return f"{self.name} {shapes}"

    @property
    def bytes(self) -> int:  # type: ignore[override]
        return sum(int(layer.weight.size) for layer in self.layers())

    def layers(self) -> list[Layer]:
        return [n.layer for n in self.nodes if n.layer is not None] + [self.last]

    @property
    def operations(self) -> int:  # type: ignore[override]
        total, sizes = 0, {-1: self.image.shape[1]}
        for i, n in enumerate(self.nodes):
            sizes[i] = sizes[n.source]
            if n.kind == "max_pool":
                sizes[i] //= 2
            if n.layer is not None:
                sizes[i] = (sizes[i] - 1) // n.layer.stride + 1
                total += 2 * len(self.image) * sizes[i] ** 2 * int(n.layer.weight.size)
        return total + 2 * len(self.image) * int(self.last.weight.size)

    def zero_of(self, node: int) -> np.int8:
        return self.in_zero if node == -1 else ZERO

    def chain(self) -> tuple[Chain, str]:
        c = Chain()
        values = {-1: c.value("image", self.image)}
        for i, n in enumerate(self.nodes):
            source = values[n.source]
            if n.kind == "max_pool":
                values[i] = c.op("max_pool", {"input": source})[0]
            elif n.kind == "average":
                sums = c.op("sum_pixels", {"input": source})[0]
                # The mean of 49 codes is itself a code of the source's scale and zero point.
                values[i] = c.op("quantize", {"input": sums, "scale": c.constant(np.float32(49))}, out_dtype="i8")[0]
            else:
                assert n.layer is not None
                values[i] = self._convolution(c, n, n.layer, values)
        flat = values[len(self.nodes) - 1]
        w = self.last
        y = c.op("scaled_matmul", {
            "lhs": c.op("flatten", {"input": flat})[0], "rhs": c.constant(w.weight.reshape(len(w.weight), -1)),
            "lhs_scale": c.constant(w.in_scale), "rhs_scale": c.constant(w.scale.reshape(-1, 1)),
            "lhs_zero_point": c.constant(ZERO), "bias": c.constant(w.bias)},
            rhs_transposed=True, bias_stage="acc", lhs_zero_mode="int")[0]  # fmt: skip
        return c, y

    def _convolution(self, c: Chain, n: Node, w: Layer, values: dict[int, str]) -> str:
        residual = None
        if n.residual is not None:
            scale = c.constant(self.nodes[n.residual].scale)
            residual = c.op("dequant", {"input": values[n.residual], "scale": scale, "zero_point": c.constant(ZERO)},
                            zero_mode="int", dtype="i8", out_dtype="f32")[0]  # fmt: skip
        return c.op("conv2d_q", {
            "input": values[n.source], "weight": c.constant(w.weight), "input_scale": c.constant(w.in_scale),
            "weight_scale": c.constant(w.scale.reshape(-1, 1, 1, 1)),
            "input_zero_point": c.constant(self.zero_of(n.source)), "bias": c.constant(w.bias), "c": residual,
            "out_scale": c.constant(w.out_scale), "out_zero_point": c.constant(ZERO)},
            input_layout="NHWC", weight_layout="FHWC", strides=(w.stride,) * 2, padding=(w.padding,) * 4,
            bias_stage="acc", input_zero_mode="int", out_dtype="i8", activation="relu" if w.relu else "none",
            **({"beta": 1.0} if residual else {}))[0]  # fmt: skip

    @cached_property
    def _built(self) -> tuple[Chain, str]:
        return self.chain()

    def program(self) -> Built:
        chain, y = self._built
        return chain.built(y)

    def reference(self) -> Array:
        chain, y = self._built
        return chain.evaluate(y)


def digits(count: int) -> Network:
    """The network of samples/01_digits on `count` random images with 17 grey values."""
    from safetensors.numpy import load_file

    folder = Path(__file__).resolve().parents[2] / "samples" / "01_digits"
    p = load_file(str(folder / "digits.safetensors"))
    layers = []
    in_scale = p["input.scale"]
    for name, stride, relu in (("conv1", 1, True), ("conv2", 2, True), ("conv3", 1, True), ("fc", 1, False)):
        w = p[f"{name}.weight"]
        if w.ndim == 2:
            w = w.reshape(len(w), 1, 1, -1)
        scale = p[f"{name}.weight_scale"].reshape(-1)
        layers.append(
            Layer(w, scale, p[f"{name}.bias"], stride, np.float32(in_scale), np.float32(p[f"{name}.out_scale"]), relu)
        )
        in_scale = p[f"{name}.out_scale"]
    grey = np.random.default_rng(0).integers(0, 17, (count, 8, 8, 1))
    zero = np.int8(p["input.zero_point"])
    nodes = tuple(Node("conv", i - 1, w, scale=w.out_scale) for i, w in enumerate(layers[:-1]))
    return Network(
        f"digits batch {count}", (grey * 8 + int(zero)).astype(np.int8), layers[0].in_scale, zero, nodes, layers[-1]
    )


def resnet18(batch: int, size: int = 224, widths: Sequence[int] = (64, 128, 256, 512), classes: int = 1000) -> Network:
    """A network of ResNet-18's structure (7x7 stem, max pool, four stages of two basic blocks, mean, classifier) with
    random weights.

    `size` is a multiple of 32. The mean needs a final image of 7x7, that is size 224, and is left out for other sizes.
    """
    rng = np.random.default_rng(0)
    nodes: list[Node] = []
    scale = np.float32(1 / 64)

    def conv(source: int, channels: int, filters: int, kernel: int, stride: int, *, relu: bool = True,
             residual: int | None = None, first: bool = False) -> int:  # fmt: skip
        weight = rng.integers(-127, 128, (filters, kernel, kernel, channels), dtype=np.int8)
        deviation = 74.0 * 74.0 * np.sqrt(kernel * kernel * channels)
        into = in_scale if first else scale
        # With these scales the sums fill about a third of the codes' range, at the same result scale in every layer.
        w_scale = rng.uniform(25, 35, filters).astype(np.float32) * scale / into / np.float32(deviation)
        bias = (rng.uniform(1, 20, filters) * scale / (into * w_scale)).astype(np.int32)
        layer = Layer(weight, w_scale, bias, stride, into, scale, relu)
        nodes.append(Node("conv", source, layer, residual, scale))
        return len(nodes) - 1

    in_scale = np.float32(1 / 64)
    at = conv(-1, 3, widths[0], 7, 2, first=True)
    nodes.append(Node("max_pool", at, scale=scale))
    at, channels = len(nodes) - 1, widths[0]
    for stage, filters in enumerate(widths):
        for block in range(2):
            stride = 2 if stage and not block else 1
            first = conv(at, channels, filters, 3, stride)
            short = at if stride == 1 else conv(at, channels, filters, 1, stride, relu=True)
            at, channels = conv(first, filters, filters, 3, 1, residual=short), filters
    pixels = 1
    if size == 224:
        nodes.append(Node("average", at, scale=scale))
    else:
        pixels = (size // 32) ** 2
    weight = rng.integers(-127, 128, (classes, 1, 1, channels * pixels), dtype=np.int8)
    last = Layer(weight, np.full(classes, 1e-3, np.float32), np.zeros(classes, np.int32), 1, scale, scale, False)
    image = rng.integers(-127, 128, (batch, size, size, 3), dtype=np.int8)
    return Network(f"resnet18 batch {batch}", image, in_scale, np.int8(0), tuple(nodes), last)
