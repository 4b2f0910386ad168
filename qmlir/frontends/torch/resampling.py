"""Decompositions of images brought to another size: averages over windows, and filters that widen with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ...dialect.dtypes import Array
from .graph import aten
from .rules import TorchResult, TorchRule, rule


def _windows(s: int, n: int) -> list[tuple[int, int]]:
    """Where each of `n` windows over `s` elements begins and ends."""
    return [(i * s // n, -(-(i + 1) * s // n)) for i in range(n)]


@rule(
    aten.adaptive_avg_pool1d.default, aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool3d.default,
)  # fmt: skip
def adaptive_average(x: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Windows of uneven sizes: output i of n is the mean over `i * s // n .. ceil((i + 1) * s / n)`; one axis after
    the other, as the windows are products of intervals."""
    axes = range(x.dim() - len(sizes), x.dim())
    have = [x.shape[a] for a in axes]
    if all(n == 1 for n in sizes):
        return NotImplemented  # a mean, which is converted as it is
    if not all(isinstance(s, int) for s in have):
        return _averaged(x, axes, sizes)
    if all(s % n == 0 for s, n in zip(have, sizes, strict=True)):
        return NotImplemented  # equal windows are converted as they are
    total, count = _wide(x), torch.ones((), dtype=torch.float32)
    for axis, s, n in zip(axes, have, sizes, strict=True):
        bounds = _windows(s, n)
        total = torch.cat([total.narrow(axis, a, b - a).sum(axis, keepdim=True) for a, b in bounds], axis)
        shape = [n if a == axis else 1 for a in axes]
        count = count * torch.tensor([float(b - a) for a, b in bounds]).reshape(shape)
    return (total / count).to(x.dtype)


@rule(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_maximum(x: torch.Tensor, sizes: Sequence[int]) -> TorchResult:
    """The same of maxima, with their places in the image: of uneven windows torch-mlir takes those of even ones, for
    which dynamic sizes are not known."""
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
    """In f32, or f64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _averaged(x: torch.Tensor, axes: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """The same of dynamic sizes: a product with the shares [n, s] of the elements in the windows, axis by axis."""
    found = _wide(x)
    for axis, n in zip(axes, sizes, strict=True):
        s = x.shape[axis]
        if str(n) == str(s):
            continue  # of an unknown size, which stays
        window, place = torch.arange(n)[:, None], torch.arange(s)[None]
        first, last = window * s // n, ((window + 1) * s + (n - 1)) // n
        inside = ((place >= first) & (place < last)).to(found.dtype)
        found = (found.transpose(axis, -1) @ (inside / (last - first)).t()).transpose(axis, -1)
    return found.to(x.dtype)


def _hat(x: Array) -> Array:
    found: Array = np.clip(1 - np.abs(x), 0, 1)
    return found


def _cubic(x: Array) -> Array:
    """Keys' function with a = -0.5, as antialiased filters have it."""
    x, a = np.abs(x), -0.5
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _filtered(reach: int, function: Callable[[Array], Array]) -> TorchRule:
    """A filter of `function`, which is 0 from `reach` on, made wider where the image becomes smaller, axis by axis.
    Source: ATen, UpSampleKernel.cpp (`HelperInterpBase::_compute_indices_min_size_weights_aa`)."""

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
