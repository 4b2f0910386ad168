"""Convolutions written in linalg whose single window leaves the image's edge unread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qmlir

CONV = """
func.func @main(%x: tensor<{n}x{h}x{h}x2x{t}>, %w: tensor<{k}x{k}x2x3x{t}>) -> tensor<{n}x{o}x{o}x3x{acc}> {{
  %zero = arith.constant {zero} : {acc}
  %e = tensor.empty() : tensor<{n}x{o}x{o}x3x{acc}>
  %f = linalg.fill ins(%zero : {acc}) outs(%e : tensor<{n}x{o}x{o}x3x{acc}>) -> tensor<{n}x{o}x{o}x3x{acc}>
  %0 = linalg.conv_2d_nhwc_hwcf {{strides = dense<{s}> : tensor<2xi64>, dilations = dense<{d}> : tensor<2xi64>}}
    ins(%x, %w : tensor<{n}x{h}x{h}x2x{t}>, tensor<{k}x{k}x2x3x{t}>)
    outs(%f : tensor<{n}x{o}x{o}x3x{acc}>) -> tensor<{n}x{o}x{o}x3x{acc}>
  return %0 : tensor<{n}x{o}x{o}x3x{acc}>
}}
"""
# batch, image, window, stride, dilation, windows along an axis
SHAPES = [(1, 4, 3, 2, 1, 1), (2, 6, 3, 2, 1, 1), (1, 8, 3, 1, 3, 1), (1, 4, 1, 1, 1, 3), (1, 6, 1, 2, 1, 2)]


def convolved(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], s: int, d: int, o: int) -> np.ndarray[Any, Any]:
    steps = range(o)
    windows = [[x[:, i * s :, j * s :][:, : d * len(w) : d, : d * len(w) : d] for j in steps] for i in steps]
    return np.einsum("ijnrsc,rscf->nijf", np.array(windows, np.float64), w.astype(np.float64))


@pytest.mark.parametrize("target", ["cpu", "vulkan:lavapipe"])
@pytest.mark.parametrize(("t", "acc"), [("i8", "i32"), ("f32", "f32")])
@pytest.mark.sweep(fast=27, slow=26)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_linalg_convolution(shape: tuple[int, ...], t: str, acc: str, target: str, tmp_path: Path) -> None:
    """Regression: the convolution read beyond the image, with a result of 153 instead of 189."""
    n, h, k, s, d, o = shape
    rng = np.random.default_rng(0)
    dtype = np.int8 if t == "i8" else np.float32
    x, w = rng.integers(-9, 9, (n, h, h, 2)).astype(dtype), rng.integers(-9, 9, (k, k, 2, 3)).astype(dtype)
    path = tmp_path / "conv.mlir"
    path.write_text(CONV.format(n=n, h=h, k=k, s=s, d=d, o=o, t=t, acc=acc, zero="0" if t == "i8" else "0.0"))
    got = qmlir.load(qmlir.compile(path, target=target)).main(x, w)
    np.testing.assert_array_equal(np.asarray(got, np.float64), convolved(x, w, s, d, o))
