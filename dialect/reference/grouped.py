"""grouped_matmul: rows multiplied by the weight of their group (docs/semantics.md, section 4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import DTYPES, Array
from ..ods import Keywords
from ..ops.common import with_bounds
from ..ops.grouped_matmul import GroupedMatmulOp
from .matmul import scaled_matmul
from .values import integers

_DEFAULTS = GroupedMatmulOp.DEFAULTS
_PER_EXPERT = ("rhs_scale", "rhs_zero_point")
_PER_ROW = ("lhs_scale", "lhs_zero_point", "c", "act_scale", "out_scale", "out_multiplier", "out_zero_point")


def group_values(x: Array | None, g: int, count: int) -> Array | None:
    """The values of group `g` of a parameter whose leading axis is the groups, or blocks of groups; a shared parameter
    is unchanged."""
    if x is None or np.ndim(x) < 3:
        return x
    return np.asarray(x)[g * np.shape(x)[0] // count]


def by_row(x: Array, shape: tuple[int, ...]) -> Array:
    """Expand a parameter that broadcasts in blocks to `shape`, `[.., X]`, to one entry per row: `[rows, Y]`. A
    parameter without a row axis is unchanged."""
    if np.ndim(x) < 2:
        return x
    x = np.asarray(x).reshape((1,) * (len(shape) - np.ndim(x)) + np.shape(x))
    for axis, size in enumerate(shape[:-1]):
        x = np.repeat(x, size // max(1, x.shape[axis]), axis)
    return x.reshape(math.prod(shape[:-1]), x.shape[-1])


def _group_bias(bias: Array | None, g: int, count: int) -> Array | None:
    """The bias of group `g`: `[G, N]` is per group, `[N]` is shared."""
    if bias is None or np.ndim(bias) < 2:
        return bias
    return np.asarray(bias)[g if np.shape(bias)[0] == count else 0]


def check_ids(expert_ids: Array, experts: int, skip_invalid: bool) -> Array:
    """The ids, with -1 for those outside `[0, experts)`. Raises ValueError with the position of the first such id,
    unless `skip_invalid`."""
    ids = integers(expert_ids, "'expert_ids'")
    bad = (ids < 0) | (ids >= experts)
    if bad.any() and not skip_invalid:
        t, slot = np.argwhere(bad)[0]
        raise ValueError(f"expert_ids[{t}, {slot}] = {ids[t, slot]} is outside [0, {experts})")
    return np.where(bad, -1, ids)


def grouped_matmul(
    lhs: Array,
    rhs: Array,
    *,
    group_sizes: Array | None = None,
    expert_ids: Array | None = None,
    routing_weights: Array | None = None,
    skip_invalid: bool = _DEFAULTS["skip_invalid"],
    **kw: Any,
) -> Array:
    """Contiguous: `lhs [M, K]` sorted by group, `group_sizes [G]`, `rhs [G, K, N]`, out `[M, N]`.

    Routed: `lhs [T, K]` (or `[T, topk, K]`), `expert_ids [T, topk]`, out `[T, topk, N]`, or `[T, N]` with
    `routing_weights [T, topk]` (the f32 weighted sum in ascending slot order, then the cast). An id outside
    `[0, G)` raises ValueError with its position, or gives a zero row when `skip_invalid`.
    """
    lhs, rhs = np.asarray(lhs), np.asarray(rhs)
    count = rhs.shape[0]
    if group_sizes is not None:
        sizes = integers(group_sizes, "'group_sizes'")
        if (sizes < 0).any() or sizes.sum() != lhs.shape[0]:
            raise ValueError(f"group_sizes {sizes.tolist()} must be non-negative and add up to M = {lhs.shape[0]}")
        owner = np.repeat(np.arange(count), sizes)
        rowed = {n: by_row(kw[n], lhs.shape) for n in _PER_ROW if kw.get(n) is not None}
        return _rows(lhs, rhs, owner, {**kw, **rowed})
    assert expert_ids is not None
    ids = check_ids(expert_ids, count, skip_invalid)
    tokens, topk = ids.shape
    rows = np.repeat(lhs, topk, 0) if lhs.ndim == 2 else lhs.reshape(tokens * topk, lhs.shape[-1])
    kw = dict(kw)
    for name in _PER_ROW:
        value = kw.get(name)
        if value is None:
            continue
        if name.startswith("lhs") and lhs.ndim == np.ndim(value) == 2:
            value = np.asarray(value)[:, None]
        kw[name] = by_row(value, (tokens, topk, lhs.shape[-1]))
    out_dtype = kw.pop("out_dtype", _DEFAULTS["out_dtype"])
    inner = out_dtype if routing_weights is None else "f32"
    out = _rows(rows, rhs, ids.reshape(-1), {**kw, "out_dtype": inner})
    out = out.reshape(tokens, topk, out.shape[-1])
    if routing_weights is None:
        return out
    total = np.zeros((tokens, out.shape[-1]), np.float32)
    for slot in range(topk):
        total = total + np.asarray(routing_weights)[:, slot : slot + 1].astype(np.float32) * out[:, slot]
    return total.astype(DTYPES[out_dtype].numpy)


def _rows(lhs: Array, rhs: Array, owner: Array, kw: Keywords) -> Array:
    """Multiply each row by the weight of its group, `owner`; rows with owner -1 become zero."""
    count = rhs.shape[0]
    kw = with_bounds(kw)
    out: Array | None = None
    for g in range(count):
        rows = np.flatnonzero(owner == g)
        if not rows.size and out is not None:
            continue
        part = dict(kw)
        for name in _PER_EXPERT:
            part[name] = group_values(kw.get(name), g, count)
        part["bias"] = _group_bias(kw.get("bias"), g, count)
        for name in _PER_ROW:
            value = kw.get(name)
            if value is not None and np.ndim(value) == 2:
                part[name] = np.asarray(value)[rows]
        y = scaled_matmul(lhs[rows], rhs[g], **{k: v for k, v in part.items() if v is not None})
        if out is None:
            out = np.zeros((lhs.shape[0], y.shape[-1]), y.dtype)
        out[rows] = y
    assert out is not None
    return out
