"""Decompositions of paddings: gathers, slices, zeros around the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from .graph import aten
from .rules import rule


def _gathered(
    x: torch.Tensor, pads: Sequence[int], source: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    """`x` padded by (before, after) of the last axis, the one before it, ...: element i of an axis of size s is
    `source(i, s)`, i counted from the first that is not padding."""
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
    """Mirrored without the edge itself."""
    return _gathered(x, pads, lambda i, s: (s - 1) - abs((s - 1) - abs(i)))


@rule(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(x: torch.Tensor, pads: Sequence[int]) -> torch.Tensor:
    """The edge again and again: `i` between 0 and `s - 1`."""
    return _gathered(x, pads, lambda i, s: (abs(i) - abs(i - (s - 1)) + (s - 1)) // 2)


@rule(aten.constant_pad_nd.default)
def constant_pad(x: torch.Tensor, pads: Sequence[int], value: float = 0) -> torch.Tensor:
    """What is cut off by negative pads, as slices: torch-mlir makes tensors of other sizes of these."""
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
    """By gathers, but for constants."""
    if mode == "constant":
        return constant_pad(x, pads, 0 if value is None else value)
    if mode == "circular":
        return _gathered(x, pads, lambda i, s: i % s)
    return (reflection_pad if mode == "reflect" else replication_pad)(x, pads)
