"""Decompositions of image resizing: averages and maxima over windows, and filters that widen with the scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ...dialect.dtypes import Array
from .graph import aten
from .rules import TorchResult, TorchRule, rule


def _windows(s: int, n: int) -> list[tuple[int, int]]:
    """The begin and end of each of `n` windows over `s` elements."""
    return [(i * s // n, -(-(i + 1) * s // n)) for i in range(n)]


@rule(
    aten.adaptive_avg_pool1d.default, aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool3d.default,
)  # fmt: skip
def adaptive_average(x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Means over uneven windows: output i of n is the mean over `i * s // n .. ceil((i + 1) * s / n)`. Computed one
    axis after the other, because the windows are products of intervals."""
    axes = range(x.dim() - len(sizes), x.dim())
    have = [x.shape[a] for a in axes]
    if all(n == 1 for n in sizes):
        return NotImplemented  # torch-mlir converts a mean
    if not all(isinstance(s, int) for s in have):
        return _averaged(x, axes, sizes)
    if all(s % n == 0 for s, n in zip(have, sizes, strict=True)):
        return NotImplemented  # torch-mlir converts equal windows
    total, count = _wide(x), torch.ones((), dtype=torch.float32)
    for axis, s, n in zip(axes, have, sizes, strict=True):
        bounds = _windows(s, n)
        total = torch.cat([total.narrow(axis, a, b - a).sum(axis, keepdim=True) for a, b in bounds], axis)
        shape = [n if a == axis else 1 for a in axes]
        count = count * torch.tensor([float(b - a) for a, b in bounds]).reshape(shape)
    return (total / count).to(x.dtype)


@rule(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_maximum(x: torch.Tensor, sizes: Sequence[int]) -> TorchResult:
    """Maxima over the same windows, with their indices in the image: torch-mlir uses even windows instead of uneven
    ones. Not for dynamic sizes, of which it is unknown whether their windows are even."""
    have = x.shape[x.dim() - len(sizes) :]
    if all(s % n == 0 for s, n in zip(have, sizes, strict=True)) or not x.is_floating_point():
        return NotImplemented
    place, step = torch.zeros(x.shape, dtype=torch.int64), 1
    for k in range(len(sizes)):
        axis, s, n = x.dim() - 1 - k, have[-1 - k], sizes[-1 - k]
        found = []
        for first, last in _windows(s, n):
            value, at = x.narrow(axis, first, last - first).max(axis, keepdim=True)
            before = place.narrow(axis, first, last - first).gather(axis, at)
            found.append((value, before + (at + first) * step))
        x, place = (torch.cat(parts, axis) for parts in zip(*found, strict=True))
        step *= s
    return [x, place]


def _wide(x: torch.Tensor) -> torch.Tensor:
    """`x` in f32, or in f64 if it is f64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _averaged(x: torch.Tensor, axes: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """The same with dynamic sizes: one product per axis with the weights [n, s] of the elements in the windows."""
    found = _wide(x)
    for axis, n in zip(axes, sizes, strict=True):
        s = x.shape[axis]
        if str(n) == str(s):
            continue  # the axis keeps its dynamic size
        window, place = torch.arange(n)[:, None], torch.arange(s)[None]
        first, last = window * s // n, ((window + 1) * s + (n - 1)) // n
        inside = ((place >= first) & (place < last)).to(found.dtype)
        found = (found.transpose(axis, -1) @ (inside / (last - first)).t()).transpose(axis, -1)
    return found.to(x.dtype)


def _hat(x: Array) -> Array:
    found: Array = np.clip(1 - np.abs(x), 0, 1)
    return found


def _cubic(x: Array) -> Array:
    """Keys' cubic kernel with a = -0.5, as in antialiased filters."""
    x, a = np.abs(x), -0.5
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _filtered(reach: int, function: Callable[[Array], Array]) -> TorchRule:
    """A rule for the filter `function`, which is 0 from `reach` on and widens if the image shrinks; one axis after the
    other. Source: ATen, UpSampleKernel.cpp (`HelperInterpBase::_compute_indices_min_size_weights_aa`)."""

    def rule(x: torch.Tensor, size: Sequence[int], align_corners: bool, *given: float | None) -> torch.Tensor:
        have = x.shape[2:]
        if not all(isinstance(n, int) for n in (*have, *size)) or not x.is_floating_point():
            return NotImplemented
        factors = [*given, None, None][: len(have)]
        found = _wide(x)
        for axis, (s, n, factor) in enumerate(zip(have, size, factors, strict=True)):
            step = 1 / factor if factor else s / n
            if align_corners:
                step = (s - 1) / (n - 1) if n > 1 else 0.0
            wide = max(step, 1.0)
            centre = step * (np.arange(n)[:, None] + 0.5)
            first = np.maximum(np.trunc(centre - reach * wide + 0.5), 0)
            last = np.minimum(np.trunc(centre + reach * wide + 0.5), s)
            place = np.arange(s)[None]
            at = (place - centre + 0.5) / wide
            weights = np.where((place >= first) & (place < last), function(at), 0)
            weights = weights / weights.sum(1, keepdims=True)  # [n, s]
            table = torch.tensor(weights.T.tolist(), dtype=found.dtype)
            found = (found.transpose(2 + axis, -1) @ table).transpose(2 + axis, -1)
        return found.to(x.dtype)

    return rule


rule(aten._upsample_bilinear2d_aa.default)(_filtered(1, _hat))
rule(aten._upsample_bicubic2d_aa.default)(_filtered(2, _cubic))
