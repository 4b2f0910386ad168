"""Rules for operators that torch-mlir converts wrongly, does not convert, or crashes on, against eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qmlir

aten = torch.ops.aten


class Calls(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, f: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.f = f
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any, y: Any) -> Any:
        return self.f(x, y)


class Cells(nn.Module):
    """Recurrent cells, one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(5, 6), nn.GRUCell(5, 6, bias=False), nn.RNNCell(5, 6, True, "relu")

    def forward(self, x: Any, y: Any) -> Any:
        state, gru, rnn = (y, y + 1), y, None
        for step in x.unbind(1):
            state, gru, rnn = self.lstm(step, state), self.gru(step, gru), self.rnn(step, rnn)
        return *state, gru, rnn


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.max = nn.EmbeddingBag(20, 4, mode="mean", padding_idx=3), nn.EmbeddingBag(20, 4, mode="max")

    def forward(self, x: Any, y: Any) -> Any:
        return self.mean(x), self.max(x), self.mean(x.reshape(-1), y), F.one_hot(x, 20)


def activated(x: Any, y: Any) -> Any:
    """A per-channel slope, and norms without weights."""
    return F.prelu(x, y), F.instance_norm(x), F.instance_norm(x, y.abs(), y.abs() + 1, y, y, use_input_stats=False)


def scattered(x: Any, y: Any) -> Any:
    """Gathers and scatters along an axis that is counted from the end."""
    return (x.scatter(-1, y, 1.5), x.scatter(-2, y % 2, 1), x.scatter(-1, y, x * 2), x.scatter_add(-1, y % 3, x),
            x.gather(-1, y), x.scatter_reduce(-1, y % 3, x, "amax"))  # fmt: skip


def measured(x: Any, y: Any) -> Any:
    bounds = torch.linspace(-1, 1, 7)
    holes = torch.where(x > 0, x, float("nan"))
    return (torch.cdist(x, y), torch.cdist(x, y, 1.0), torch.searchsorted(bounds, x), torch.hypot(x, x + 1),
            torch.bucketize(x, bounds, right=True), x.median(1)[0], x.median(), x.kthvalue(3, -1),
            holes.nanmean(1))  # fmt: skip


def windowed(x: Any, y: Any) -> Any:
    columns = F.unfold(x, (3, 2), padding=1, stride=2, dilation=(1, 2))
    return columns, F.fold(columns, (8, 9), (3, 2), padding=1, stride=2, dilation=(1, 2))


def one_window(x: Any, y: Any) -> Any:
    """Splits of the only window, as in HaloNet's last attention."""
    window = F.pad(x, [1, 1, 1, 1]).unfold(2, 6, 4).unfold(3, 6, 4).reshape(2, 12, 1, 36).permute(0, 2, 3, 1)
    return window.split([4, 8], -1), window.split(5, -1), x[:0].split(0), x[:0].split(4)


def transposed(x: Any, y: Any) -> Any:
    return F.conv_transpose2d(x.sum(-1), y.sum(-1), None, 2, 1, groups=2), F.conv_transpose3d(x, y, None, 2, 1, 1)


def transformed(x: Any, y: Any) -> Any:
    """Fourier transforms of real and complex numbers, their inverses, and short-time ones."""
    half = torch.fft.rfft2(x, norm="ortho")
    return (torch.view_as_real(half), torch.fft.irfft2(half * 2, s=x.shape[-2:]), half.abs(),
            torch.fft.fftn(x, dim=(-1, -2)).real, torch.view_as_real(torch.fft.ifft(torch.fft.fft(x, dim=1))),
            torch.stft(y, 16, 4, 12, torch.hann_window(12), return_complex=True).abs())  # fmt: skip


def edges(x: Any, y: Any) -> Any:
    """Regression: a bitwise op of a bool and an integer gave a bool; one of log_sigmoid's two results was missing; an
    antialiasing filter with aligned corners gave a single pixel the mean of all; hypot of two infinities was NaN; f64
    lost half of its digits."""
    image, infinite = x.reshape(1, 1, 4, 6), torch.full_like(x, float("inf"))
    small = F.interpolate(image, (1, 3), mode="bilinear", align_corners=True, antialias=True)
    wide = F.adaptive_avg_pool1d(y, 4)
    return (x > 0) ^ 3, (x > 0) | 2, aten.log_sigmoid_forward(x)[0], small, torch.hypot(infinite, -infinite), wide


def _ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


CASES: dict[str, Callable[[], tuple[nn.Module, Any, Any]]] = {
    "cells": lambda: (Cells(), torch.randn(2, 3, 5), torch.randn(2, 6)),
    "bags": lambda: (Bags(), _ids(20, 3, 4), torch.tensor([0, 3, 3, 7])),
    "activated": lambda: (Calls(activated), torch.randn(2, 4, 3, 5), torch.randn(4)),
    "scattered": lambda: (Calls(scattered), torch.randn(2, 5), torch.tensor([[4, 0, 3, 1, 2], [1, 0, 2, 4, 3]])),
    "measured": lambda: (Calls(measured), torch.randn(2, 5, 4), torch.randn(2, 3, 4)),
    "windowed": lambda: (Calls(windowed), torch.randn(2, 3, 8, 9), torch.zeros(1)),
    "one window": lambda: (Calls(one_window), torch.randn(2, 12, 4, 4), torch.zeros(1)),
    "transposed": lambda: (Calls(transposed), torch.randn(2, 4, 4, 5, 3), torch.randn(4, 2, 3, 3, 3)),
    "edges": lambda: (Calls(edges), torch.randn(4, 6), torch.randn(4, 6).double()),
    "transformed": lambda: (Calls(transformed), torch.randn(2, 7, 9), torch.randn(2, 64)),
}


def close(found: Any, expected: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves
    for got, want in zip(leaves(found), leaves(expected), strict=True):
        tolerance = 1e-10 if want.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=tolerance, atol=tolerance)


@pytest.mark.sweep(fast=11, slow=60)
@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    torch.manual_seed(0)
    made, *inputs = CASES[name]()
    made.eval()
    with torch.no_grad():
        expected = made(*inputs)
        close(qmlir.load(qmlir.compile(torch.export.export(made, tuple(inputs)), cache=False)).main(*inputs), expected)


DYNAMIC: dict[str, Callable[[Any], Any]] = {
    "align_corners": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True),
    "nearest-exact": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest-exact"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "in halves": lambda x: torch.cat(x.chunk(2, 3), 1),
    "to a multiple": lambda x: F.pad(x, (0, (4 - x.shape[3] % 4) % 4)),
    "transformed": lambda x: torch.fft.fftn(x, dim=(0, 2)).real,
    "to size": lambda x: F.interpolate(x, size=(20, 13), mode="bicubic", align_corners=True),
}


@pytest.mark.slow
@pytest.mark.sweep(slow=60)
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes(name: str) -> None:
    made = Calls(lambda x, y: DYNAMIC[name](x) + y)
    auto = torch.export.Dim.AUTO
    x, y = torch.randn(2, 3, 9, 12), torch.randn(1)
    program = torch.export.export(made, (x, y), dynamic_shapes={"x": {0: auto, 2: auto, 3: auto}, "y": None})
    main = qmlir.load(qmlir.compile(program, cache=False)).main
    for given in (x, torch.randn(1, 3, 16, 10)):
        close(main(given, y), made(given, y))
