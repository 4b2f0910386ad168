"""Decompositions of operators that depend on the order of elements, or are along an axis of a scalar tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from .graph import aten
from .rules import SHORT, TorchResult, TorchRule, rule

if TYPE_CHECKING:
    from torch._ops import OpOverload

Found = tuple[torch.Tensor, torch.Tensor]
# Operators along an axis that torch-mlir does not convert, or on which it never ends, if the tensor has no axes.
ALONG_AN_AXIS = frozenset((
    aten.softmax.int, aten._softmax.default, aten.log_softmax.int, aten._log_softmax.default, aten.amax.default,
    aten.amin.default, aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default, aten.logsumexp.default,
    aten.logcumsumexp.default, aten.cumsum.default, aten.cumprod.default, aten.cummax.default, aten.cummin.default,
    aten.kthvalue.default, aten.median.dim, aten.nanmedian.dim, aten.sort.default, aten.sort.stable, aten.topk.default,
    aten.cosine_similarity.default, aten.prod.dim_int, aten.gather.default, aten.scatter.src, aten.scatter.value,
    aten.scatter_add.default, aten.scatter_reduce.two,
))  # fmt: skip


def with_an_axis(target: OpOverload) -> TorchRule:
    """An operator along an axis, applied to a tensor without axes: computed on one axis of one element."""

    def rule(x: torch.Tensor, *args: object, **kwargs: object) -> TorchResult:
        if x.dim():
            return NotImplemented
        args = tuple(a.reshape(1) if isinstance(a, torch.Tensor) and not a.dim() else a for a in args)
        found = target(x.reshape(1), *args, **kwargs)
        return [f.reshape([]) for f in found] if isinstance(found, (tuple, list)) else found.reshape([])

    return rule


@rule(aten.sort.stable)
def sort(x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> TorchResult:
    """IREE's sort exchanges only neighbours that are out of order, so it is always stable."""
    return aten.sort.default(x, dim, descending)


@rule(aten.topk.default)
def top(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TorchResult:
    """With results in any order, which torch-mlir does not convert: the first `k` of a sort."""
    if sorted:
        return NotImplemented
    values, places = aten.sort.default(x, dim, largest)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


@rule(aten.kthvalue.default)
def kth_value(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """The k-th smallest element and its index, by sorting."""
    values, places = (t.narrow(dim, k - 1, 1) for t in aten.sort.default(x, dim, False))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@rule(aten.median.dim)
def median(x: torch.Tensor, dim: int, keepdim: bool = False) -> TorchResult:
    """The lower one of two middle elements, by sorting; the first NaN if there is one."""
    size = x.shape[dim]
    if not isinstance(size, int):
        return NotImplemented
    value, place = kth_value(x, (size + 1) // 2, dim, keepdim)
    if not x.is_floating_point():
        return value, place
    unknown = torch.isnan(x)
    some = unknown.any(dim, keepdim)
    first = unknown.to(torch.int32).argmax(dim, keepdim)
    return torch.where(some, torch.full((), torch.nan, dtype=x.dtype), value), torch.where(some, first, place)


@rule(aten.median.default)
def median_of_all(x: torch.Tensor) -> torch.Tensor:
    """The lower one of two middle elements, by sorting."""
    found = median(x.reshape(-1), 0)
    return found if found is NotImplemented else found[0]


@rule(aten.nanmedian.dim)
def nanmedian(x: torch.Tensor, dim: int, keepdim: bool = False) -> Found:
    """The lower one of two middle elements other than NaN, which a sort puts first."""
    values, places = aten.sort.default(x, dim, False)
    last = (~torch.isnan(x)).sum(dim, keepdim=True) - 1
    middle = last.clamp(min=0) // 2
    found = [t.gather(dim, middle) for t in (values, places)]
    value, place = found if keepdim else [t.squeeze(dim) for t in found]
    return value, place


@rule(aten.nanmedian.default)
def nanmedian_of_all(x: torch.Tensor) -> torch.Tensor:
    """The lower one of two middle elements other than NaN."""
    return nanmedian(x.reshape(-1), 0)[0]


@rule(aten.quantile.default, aten.quantile.scalar)
def quantile(
    x: torch.Tensor, q: torch.Tensor | float, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear", unknown: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Interpolate between the elements at position `q (n - 1)` of the sorted row; `unknown`: leave out NaN. Source:
    ATen, Sorting.cpp, `quantile_compute`."""
    shares = torch.as_tensor(q, dtype=x.dtype)
    dim = dim if x.dim() else None
    rows = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    missing = torch.isnan(rows)
    ordered = aten.sort.default(rows, -1, False)[0]
    last = rows.shape[-1] - 1
    if unknown:
        place = (shares.reshape(-1) * (last - missing.sum(-1, keepdim=True))).clamp(min=0)
    else:
        place = torch.where(
            missing.any(-1, keepdim=True), torch.full((), last, dtype=x.dtype), shares.reshape(-1) * last
        )
    rounding: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "lower": torch.floor, "higher": torch.ceil, "nearest": torch.round,
    }  # fmt: skip
    if interpolation in rounding:
        place = rounding[interpolation](place)
    below = torch.floor(place)
    found = ordered.gather(-1, below.to(torch.int64))
    if interpolation in ("linear", "midpoint"):
        above = ordered.gather(-1, torch.ceil(place).to(torch.int64))
        share = torch.full((), 0.5, dtype=x.dtype) if interpolation == "midpoint" else place - below
        found = torch.lerp(found, above, share.expand(found.shape))
    found = found.movedim(-1, 0)
    if keepdim:
        found = found.reshape([-1, *[1] * x.dim()]) if dim is None else found.unsqueeze(dim % x.dim() + 1)
    return found if shares.dim() else found.squeeze(0)


@rule(aten.nanquantile.default, aten.nanquantile.scalar)
def nanquantile(
    x: torch.Tensor, q: torch.Tensor | float, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> torch.Tensor:  # fmt: skip
    """The quantile of the elements other than NaN."""
    return quantile(x, q, dim, keepdim, interpolation=interpolation, unknown=True)


@rule(aten.cummax.default)
def cummax(x: torch.Tensor, dim: int) -> TorchResult:
    """See `_running`."""
    return _running(x, dim, torch.ge)


@rule(aten.cummin.default)
def cummin(x: torch.Tensor, dim: int) -> TorchResult:
    """See `_running`."""
    return _running(x, dim, torch.le)


def _running(x: torch.Tensor, dim: int, wins: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> TorchResult:
    """The best element so far and its index, the later of equal ones, by a scan over 2, 4, 8, .. elements up to each
    position. After a NaN everything is NaN."""
    size = x.shape[dim]
    if not isinstance(size, int):
        return NotImplemented
    value = x.movedim(dim, -1)
    place = torch.arange(size).expand(value.shape)
    step = 1
    while step < size:
        later, earlier = value[..., step:], value[..., :-step]
        keeps = wins(later, earlier)
        if x.is_floating_point():
            keeps = torch.isnan(later) | (keeps & ~torch.isnan(earlier))
        value = torch.cat([value[..., :step], torch.where(keeps, later, earlier)], -1)
        place = torch.cat([place[..., :step], torch.where(keeps, place[..., step:], place[..., :-step])], -1)
        step *= 2
    return value.movedim(-1, dim), place.movedim(-1, dim)


@rule(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    bounds: torch.Tensor, x: torch.Tensor | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """The number of sorted `bounds` below each element of `x` or, if `right`, not above it."""
    if sorter is not None:
        bounds = bounds.gather(-1, sorter)
    number = torch.as_tensor(x)[..., None]
    bounds = bounds if bounds.dim() == 1 else bounds.unsqueeze(-2)
    before = bounds <= number if right or side == "right" else bounds < number
    return before.sum(-1).to(torch.int32 if out_int32 else torch.int64)


@rule(aten.cumprod.default)
def running_product(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """With another result dtype: converted first."""
    return NotImplemented if dtype is None else aten.cumprod.default(x.to(dtype), dim)


@rule(aten.logcumsumexp.default)
def log_of_running_sums(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Add to each element that 1, 2, 4, .. before it (Hillis, Steele, 1986), as logarithms: exponentials would
    overflow."""
    if x.dim() == 0 or x.dtype in SHORT:
        return NotImplemented
    count, x, distance = x.shape[dim], x.transpose(dim, -1), 1
    while distance < count:
        before = aten.constant_pad_nd.default(x[..., : count - distance], [distance, 0], -math.inf)
        x, distance = torch.logaddexp(x, before), 2 * distance
    return x.transpose(dim, -1)
