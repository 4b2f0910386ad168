"""Post-training quantisation in numpy: float layers in, int8 layers out.

Weights are int8, symmetric, one scale per output channel; activations int8, one scale and zero point
per tensor; biases int32 at the scale of the accumulator. Between layers values stay int8: each layer
requantises its own output. Codes, scales and zero points mean what they mean in the dialect's `conv2d_q`
and `scaled_matmul`; `forward` evaluates them directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I8 = NDArray[np.int8]


@dataclass(frozen=True)
class FloatLayer:
    """A convolution with padding 1 (weight `[F, KH, KW, C]`) or a product (`[N, K]`); then relu if `relu`."""

    name: str
    weight: F32
    bias: F32
    stride: int
    relu: bool


@dataclass(frozen=True)
class Layer:
    """A quantised layer: `out = requantise(relu?(s_in * s_w[f] * (sum (x - z_in) * w + bias[f])))`."""

    name: str
    weight: I8
    weight_scale: F32  # [F, 1, 1, 1] or [N, 1]: one per output channel, in the weight's rank
    bias: NDArray[np.int32]  # [F]
    stride: int
    relu: bool
    in_scale: np.float32
    in_zero_point: np.int8
    out_scale: np.float32
    out_zero_point: np.int8


def accumulate(x: NDArray[np.float64], weight: NDArray[np.float64], stride: int) -> NDArray[np.float64]:
    """`sum x * w`, in float64, which is exact for the integers of this model.

    `x: [N, H, W, C]` with `weight: [F, KH, KW, C]` gives `[N, H', W', F]`; a weight `[N, K]` multiplies
    the flattened `x`.
    """
    if weight.ndim == 2:
        return x.reshape(len(x), -1) @ weight.T
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = np.lib.stride_tricks.sliding_window_view(x, weight.shape[1:3], axis=(1, 2))
    patches = patches[:, ::stride, ::stride]
    out: NDArray[np.float64] = np.einsum("nhwcyx,fyxc->nhwf", patches, weight, optimize=True)
    return out


def forward_float(layers: Sequence[FloatLayer], images: F32) -> list[NDArray[np.float64]]:
    """The output of every layer for `images: [N, 8, 8, 1]` (real values)."""
    outputs: list[NDArray[np.float64]] = []
    x = images.astype(np.float64)
    for layer in layers:
        x = accumulate(x, layer.weight.astype(np.float64), layer.stride) + layer.bias
        if layer.relu:
            x = np.maximum(x, 0)
        outputs.append(x)
    return outputs


def forward(layers: Sequence[Layer], images: I8) -> list[I8]:
    """The int8 output of every layer for `images: [N, 8, 8, 1]` (codes)."""
    outputs: list[I8] = []
    x = images
    for layer in layers:
        # Padding is the real value 0. After the zero point is subtracted, that is the integer 0.
        centred = x.astype(np.float64) - float(layer.in_zero_point)
        acc = accumulate(centred, layer.weight.astype(np.float64), layer.stride) + layer.bias
        scale = layer.in_scale * layer.weight_scale.reshape(-1)
        y = acc.astype(np.float32) * scale
        if layer.relu:
            y = np.maximum(y, np.float32(0))
        q = np.rint(y * (np.float32(1) / layer.out_scale)) + np.float32(layer.out_zero_point)
        x = np.clip(q, -128, 127).astype(np.int8)
        outputs.append(x)
    return outputs


def quantize(
    layers: Sequence[FloatLayer], calibration: F32, in_scale: np.float32, in_zero_point: np.int8
) -> list[Layer]:
    """Quantises `layers`; `calibration: [N, 8, 8, 1]` (real values) sets the ranges of the activations."""
    quantised: list[Layer] = []
    for layer, output in zip(layers, forward_float(layers, calibration), strict=True):
        axes = tuple(range(1, layer.weight.ndim))
        weight_scale = np.abs(layer.weight).max(axis=axes, keepdims=True) / np.float32(127)
        weight_scale[weight_scale == 0] = 1  # a channel of zeros: any scale represents it
        if layer.relu:
            # Nothing is negative after relu: the zero point -128 leaves all 256 codes to [0, max].
            out_scale, out_zero_point = np.float32(output.max() / 255), np.int8(-128)
        else:
            out_scale, out_zero_point = np.float32(np.abs(output).max() / 127), np.int8(0)
        quantised.append(
            Layer(
                name=layer.name,
                weight=np.rint(layer.weight / weight_scale).astype(np.int8),
                weight_scale=weight_scale.astype(np.float32),
                bias=np.rint(layer.bias / (in_scale * weight_scale.reshape(-1))).astype(np.int32),
                stride=layer.stride,
                relu=layer.relu,
                in_scale=in_scale,
                in_zero_point=in_zero_point,
                out_scale=out_scale,
                out_zero_point=out_zero_point,
            )
        )
        in_scale, in_zero_point = out_scale, out_zero_point
    return quantised


def tensors(layers: Sequence[Layer]) -> dict[str, NDArray[np.generic]]:
    """The tensors that `digits.mlir` reads as parameters of the scope `digits`, by name."""
    first = layers[0]
    named: dict[str, NDArray[np.generic]] = {
        "input.scale": np.array(first.in_scale),
        "input.zero_point": np.array(first.in_zero_point),
    }
    for layer in layers:
        named[f"{layer.name}.weight"] = layer.weight
        named[f"{layer.name}.weight_scale"] = layer.weight_scale
        named[f"{layer.name}.bias"] = layer.bias
        named[f"{layer.name}.out_scale"] = np.array(layer.out_scale)
        named[f"{layer.name}.out_zero_point"] = np.array(layer.out_zero_point)
    return named
