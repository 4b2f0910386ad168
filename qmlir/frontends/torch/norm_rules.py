"""Decompositions of norms: of rows, of groups of channels, and by given statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from .graph import aten
from .rules import SHORT, if_refused, rule

if TYPE_CHECKING:
    from .rules import TorchResult


@rule(aten.rms_norm.default)
def rms_norm(
    x: torch.Tensor, sizes: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """For f16 and bf16: computed in f32 and rounded once."""
    if x.dtype not in SHORT:
        return NotImplemented
    wide = x.float()
    square = (wide * wide).mean(list(range(-len(sizes), 0)), keepdim=True)
    found = wide * torch.rsqrt(square + (torch.finfo(torch.float32).eps if eps is None else eps))
    return (found if weight is None else found * weight).to(x.dtype)


@if_refused(aten.batch_norm.default)
def batch_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor | None,
    variance: torch.Tensor | None, by_input: bool, momentum: float, eps: float, fast: bool,
) -> torch.Tensor:  # fmt: skip
    """With a given mean and variance: a multiply-add per channel (axis 1)."""
    if by_input or mean is None or variance is None:
        return NotImplemented
    factor = torch.rsqrt(variance + eps) if weight is None else torch.rsqrt(variance + eps) * weight
    start, shape = -mean * factor if bias is None else bias - mean * factor, [-1, *[1] * (x.dim() - 2)]
    return x * factor.reshape(shape) + start.reshape(shape)


@if_refused(aten._native_batch_norm_legit_no_training.default)
def batch_norm_with_results(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor,
    variance: torch.Tensor, momentum: float, eps: float,
) -> TorchResult:  # fmt: skip
    """As `batch_norm`; the other results are empty in inference."""
    nothing = x.new_empty(0)
    return batch_norm(x, weight, bias, mean, variance, False, momentum, eps, False), nothing, nothing


@rule(aten.instance_norm.default)
def instance_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor | None,
    variance: torch.Tensor | None, by_input: bool, momentum: float, eps: float, fast: bool,
) -> torch.Tensor:  # fmt: skip
    """As a group norm with one channel per group: torch-mlir's conversion without weights crashes the process."""
    if not by_input and mean is not None:
        return batch_norm(x, weight, bias, mean, variance, by_input, momentum, eps, fast)
    return aten.group_norm.default(x, x.shape[1], weight, bias, eps)


@rule(aten.group_norm.default)
def group_norm(
    x: torch.Tensor, groups: int, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None,
    eps: float = 1e-5, fast: bool = True,
) -> torch.Tensor:  # fmt: skip
    """With dynamic sizes: torch-mlir replaces the number of channels by that of the groups, and torch's own
    decomposition ends in strides of unknown sizes."""
    if all(isinstance(size, int) for size in x.shape) or x.dtype in SHORT:
        return NotImplemented
    rows = x.reshape(x.shape[0], groups, -1)
    variance, mean = torch.var_mean(rows, -1, correction=0, keepdim=True)
    found = ((rows - mean) * torch.rsqrt(variance + eps)).reshape(x.shape)
    shape = [-1, *[1] * (x.dim() - 2)]
    found = found if weight is None else found * weight.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)


@rule(aten.renorm.default)
def renorm(x: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Also along an axis counted from the end. Source: ATen, Normalization.cpp, `renorm_out`."""
    others = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    norm = torch.linalg.vector_norm(x, p, others, keepdim=True)
    return x * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


def _undefined_variance(
    with_mean: bool, x: torch.Tensor, dims: Sequence[int] | None, correction: float | None, keepdim: bool
) -> TorchResult:
    """Variances and standard deviations of too few elements (not more than `correction`): NaN, where torch-mlir has
    0."""
    count = math.prod(x.shape[d] for d in dims or range(x.dim()))
    if not isinstance(count, int) or count > (1 if correction is None else correction):
        return NotImplemented
    axes = list(dims or range(x.dim()))
    nothing = x.sum(axes, keepdim=keepdim) * math.nan
    return (nothing, x.mean(axes, keepdim=keepdim)) if with_mean else nothing


for _name in ("var", "std", "var_mean", "std_mean"):
    _op, _of = getattr(aten, _name), partial(_undefined_variance, _name.endswith("mean"))
    rule(_op.correction)(lambda x, dim=None, *, correction=None, keepdim=False, of=_of: of(x, dim, correction, keepdim))
    rule(_op.dim)(lambda x, dim, unbiased=True, keepdim=False, of=_of: of(x, dim, int(unbiased), keepdim))
    rule(_op.default)(lambda x, unbiased=True, of=_of: of(x, None, int(unbiased), False))
