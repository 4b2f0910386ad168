"""Decompositions of operators on complex tensors: Fourier transforms, and others that torch-mlir does not convert."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from .graph import aten
from .rules import TorchRule, hypot, if_refused, rule

if TYPE_CHECKING:
    from torch._ops import OpOverload


def complex_of(re: torch.Tensor, im: torch.Tensor) -> torch.Tensor:
    """A complex tensor of real and imaginary parts. With dynamic sizes, torch's meta function of `torch.complex` would
    specialise them to the sizes of the traced example, and the program would accept no others."""
    if all(isinstance(n, int) for n in re.shape):
        return torch.complex(re, im)
    return torch.view_as_complex(torch.stack([re, im], -1))


@rule(aten._fft_r2c.default)
def fourier_of_real(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> torch.Tensor:
    """The Fourier transform of a real tensor over `dim`, last axis first; if `onesided`, without its redundant half."""
    *others, last = dim
    re, im = _transformed(x, None, last, True, x.shape[last] // 2 + 1 if onesided else x.shape[last])
    for axis in others:
        re, im = _transformed(re, im, axis, True, x.shape[axis])
    return complex_of(*_scaled(re, im, [x.shape[a] for a in dim], normalization))


@rule(aten._fft_c2c.default)
def fourier(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> torch.Tensor:
    """The Fourier transform over the axes `dim`, or its inverse."""
    re, im = torch.view_as_real(x).unbind(-1)
    for axis in dim:
        re, im = _transformed(re, im, axis, forward, x.shape[axis])
    return complex_of(*_scaled(re, im, [x.shape[a] for a in dim], normalization))


@rule(aten._fft_c2r.default)
def fourier_to_real(x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> torch.Tensor:
    """The inverse of a one-sided transform of real values: along the last axis, every element except the first and, for
    an even size, the last counts twice (for itself and its conjugate)."""
    *others, last = dim
    re, im = torch.view_as_real(x).unbind(-1)
    for axis in others:
        re, im = _transformed(re, im, axis, False, x.shape[axis])
    place = torch.arange(last_dim_size // 2 + 1)
    times = torch.where((place == 0) | (place * 2 == last_dim_size), 1.0, 2.0).to(re.dtype)
    times = times.reshape([-1 if a == last % re.dim() else 1 for a in range(re.dim())])
    half = last_dim_size // 2 + 1
    re, im = (t.narrow(last, 0, half) * times for t in (re, im))
    found, _ = _transformed(re, im, last, False, last_dim_size, last_dim_size)
    return _scaled(found, found, [*(x.shape[a] for a in others), last_dim_size], normalization)[0]


def _transformed(
    re: torch.Tensor, im: torch.Tensor | None, axis: int, forward: bool, count: int, period: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `count` elements of the transform over an axis, by a product with `exp(-+2 pi i j k / period)`;
    `period` defaults to the axis' size. j k is reduced modulo `period` before the angle is taken, to keep it exact."""
    period = re.shape[axis] if period is None else period
    size, sign = re.shape[axis], -2 if forward else 2
    if all(isinstance(n, int) for n in (size, count, period)):
        angles = np.outer(np.arange(size), np.arange(count)) % period * (sign * math.pi / period)
        cos, sin = (torch.tensor(f(angles).tolist(), dtype=re.dtype) for f in (np.cos, np.sin))
    else:
        turns = torch.remainder(torch.arange(size)[:, None] * torch.arange(count)[None], period)
        angle = turns.to(re.dtype) * (sign * math.pi / period)
        cos, sin = angle.cos(), angle.sin()
    re = re.transpose(axis, -1)
    if im is None:
        return (re @ cos).transpose(axis, -1), (re @ sin).transpose(axis, -1)
    im = im.transpose(axis, -1)
    return (re @ cos - im @ sin).transpose(axis, -1), (re @ sin + im @ cos).transpose(axis, -1)


def _scaled(
    re: torch.Tensor, im: torch.Tensor, sizes: Sequence[int], normalization: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise by ATen's `fft_norm_mode`: 0 not at all, 1 by the root of the number of elements, 2 by their number."""
    if not normalization:
        return re, im
    factor = 1 / math.prod(sizes)
    factor = factor if normalization == 2 else factor**0.5
    return re * factor, im * factor


def to_complex(x: torch.Tensor, dtype: torch.dtype | None = None, *_: object, **__: object) -> torch.Tensor:
    """A real tensor as a complex one with imaginary part 0: torch-mlir's own conversion crashes the process."""
    if x.is_complex() or dtype is None or not dtype.is_complex:
        return NotImplemented
    real = x.to(dtype.to_real())
    return complex_of(real, torch.zeros_like(real))


@rule(aten.stft.default)
def short_time_fourier(
    x: torch.Tensor, size: int, hop: int | None = None, width: int | None = None,
    window: torch.Tensor | None = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> torch.Tensor:  # fmt: skip
    """The transforms of overlapping frames of `size` samples, `[.., frequencies, frames]`. A shorter window is centred
    in a frame. An exported program already contains the padding that centres the frames."""
    if x.is_complex():
        return NotImplemented
    width = width or size
    shape = torch.ones(width, dtype=x.dtype) if window is None else window
    before = (size - width) // 2
    shape = aten.constant_pad_nd.default(shape, [before, size - width - before], 0.0)
    frames = x.unfold(-1, size, hop or size // 4) * shape
    half = onesided is None or onesided
    re, im = _transformed(frames, None, -1, True, size // 2 + 1 if half else size)
    re, im = (t.transpose(-1, -2) for t in _scaled(re, im, [size], int(normalized)))
    return complex_of(re, im) if return_complex else torch.stack([re, im], -1)


def absolute(x: torch.Tensor) -> torch.Tensor:
    """The absolute value of complex elements, which torch-mlir takes for real ones."""
    return hypot(*torch.view_as_real(x).unbind(-1)) if x.is_complex() else NotImplemented


@rule(aten.angle.default)
def angle(x: torch.Tensor) -> torch.Tensor:
    """The angle of complex elements, from their parts; for real elements 0, or pi if negative."""
    if x.is_complex():
        re, im = torch.view_as_real(x).unbind(-1)
        return torch.atan2(im, re)
    zero = torch.zeros((), dtype=x.dtype if x.dtype.is_floating_point else torch.float32)
    return torch.where(torch.isnan(x), x, torch.where(x < 0, zero + math.pi, zero))


# Rules that are tried before an import for nodes that read or make a complex tensor.
OF_COMPLEX: dict[OpOverload, TorchRule] = {
    aten._to_copy.default: to_complex, aten.to.dtype: to_complex, aten.to.dtype_layout: to_complex,
    aten.abs.default: absolute,
}  # fmt: skip


@if_refused(aten.mul.Tensor)
def complex_multiple(x: torch.Tensor, number: torch.Tensor | float) -> torch.Tensor:
    """A complex tensor times a real number: torch-mlir multiplies complex tensors only by tensors."""
    if not x.is_complex() or not isinstance(number, (int, float)):
        return NotImplemented
    return torch.view_as_complex(torch.view_as_real(x) * number)


# Applied inside every decomposition: torch's meta functions of these operators specialise dynamic sizes.
FOURIER: dict[OpOverload, TorchRule] = {
    aten._fft_r2c.default: fourier_of_real, aten._fft_c2c.default: fourier, aten._fft_c2r.default: fourier_to_real,
}  # fmt: skip
