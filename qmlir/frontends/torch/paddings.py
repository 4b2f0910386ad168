"""Decompositions of paddings into gathers, slices and padding with zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from .graph import aten
from .rules import rule


def _pad_by_gather(
    x: torch.Tensor, pads: Sequence[int], source: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    """Pad `x` by (before, after) of the last axis, the one before it, ...: `source(i, s)` is the index of element i of
    an axis of size s, where i counts from the first element that is not padding."""
    for k in range(len(pads) // 2):
        axis, before, after = x.dim() - 1 - k, pads[2 * k], pads[2 * k + 1]
        size = x.shape[axis]
        if all(isinstance(n, int) for n in (before, after, size)):
            if before or after:
                places = source(np.arange(-before, size + after), size)
                x = x.index_select(axis, torch.tensor(places.tolist()))
        else:
            x = x.index_select(axis, source(torch.arange(size + before + after) - before, size))
    return x


@rule(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(x: torch.Tensor, pads: Sequence[int]) -> torch.Tensor:
    """Mirror the elements without repeating the edge."""
    return _pad_by_gather(x, pads, lambda i, s: (s - 1) - abs((s - 1) - abs(i)))


@rule(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(x: torch.Tensor, pads: Sequence[int]) -> torch.Tensor:
    """Repeat the edge: `i` clamped to 0..`s - 1`."""
    return _pad_by_gather(x, pads, lambda i, s: (abs(i) - abs(i - (s - 1)) + (s - 1)) // 2)


@rule(aten.constant_pad_nd.default)
def constant_pad(x: torch.Tensor, pads: Sequence[int], value: float = 0) -> torch.Tensor:
    """With negative pads, which remove elements: as slices, because torch-mlir makes results of wrong sizes."""
    if not any(isinstance(p, int) and p < 0 for p in pads):
        return NotImplemented
    for k in range(len(pads) // 2):
        axis, before, after = x.dim() - 1 - k, pads[2 * k], pads[2 * k + 1]
        first, last = (-p if isinstance(p, int) and p < 0 else 0 for p in (before, after))
        if first or last:
            x = aten.slice.Tensor(x, axis, first, x.shape[axis] - last)
    added = [p if not isinstance(p, int) or p > 0 else 0 for p in pads]
    return aten.constant_pad_nd.default(x, added, value) if any(added) else x.clone()


@rule(aten.pad.default)
def pad(x: torch.Tensor, pads: Sequence[int], mode: str = "constant", value: float | None = None) -> torch.Tensor:
    """By gathers, except for constants."""
    if mode == "constant":
        return constant_pad(x, pads, 0 if value is None else value)
    if mode == "circular":
        return _pad_by_gather(x, pads, lambda i, s: i % s)
    return (reflection_pad if mode == "reflect" else replication_pad)(x, pads)
