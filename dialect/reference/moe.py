"""The mixture-of-experts layer and its router (docs/semantics.md, section 4)."""

from __future__ import annotations

import numpy as np

from ..dtypes import DTYPES, Array
from ..enums import SYMMETRIC_RECIPES
from ..ods import Keywords
from ..ops.moe import MoeOp
from ..ops.moe_align_block_size import MoeAlignBlockSizeOp
from ..ops.route import RouteOp
from ..shapes import block_count
from .dynamic import dynamic_quantize
from .grouped import by_row, check_ids, grouped_matmul
from .values import F32

_ROUTE, _ALIGN, _MOE = RouteOp.DEFAULTS, MoeAlignBlockSizeOp.DEFAULTS, MoeOp.DEFAULTS


def route(
    logits: Array, *, topk: int, scoring: str = _ROUTE["scoring"], renormalize: bool = _ROUTE["renormalize"]
) -> tuple[Array, Array]:
    """`logits [T, E]` to `expert_ids [T, topk]` (i32) and `routing_weights [T, topk]` (f32).

    The experts are those with the largest logits, best first; of equal logits the lower id is first, and NaN counts as
    the smallest. Their weights are their scores over all experts, softmax (`exp(x - max) / sum`) or sigmoid;
    `renormalize` divides them by the sum of the chosen scores.
    """
    x = np.asarray(logits).astype(np.float64)
    order = np.argsort(-np.where(np.isnan(x), -np.inf, x), axis=1, kind="stable")
    ids = order[:, :topk]
    with np.errstate(all="ignore"):
        if scoring == "sigmoid":
            scores = 1 / (1 + np.exp(-x))
        else:
            e = np.exp(x - x.max(1, keepdims=True)) if x.size else x
            scores = e / e.sum(1, keepdims=True)
        weights = np.take_along_axis(scores, ids, 1)
        if renormalize:
            weights = weights / weights.sum(1, keepdims=True)
    return ids.astype(np.int32), weights.astype(F32)


def moe_align_block_size(
    expert_ids: Array, *, experts: int, block_size: int, skip_invalid: bool = _ALIGN["skip_invalid"]
) -> tuple[Array, Array, Array]:
    """`expert_ids [T, topk]` to `sorted_token_ids [NB * block_size]`, `block_expert_ids [NB]` and
    `num_tokens_post_padded []`, all i32; see the op. Source: vLLM's `moe_align_block_size`."""
    flat = check_ids(expert_ids, experts, skip_invalid).reshape(-1)
    count = block_count(flat.size, experts, block_size) or 0
    places = np.full((count, block_size), flat.size, np.int32)
    owners = np.full(count, -1, np.int32)
    at = 0
    for e in range(experts):
        slots = np.flatnonzero(flat == e)
        for first in range(0, slots.size, block_size):
            part = slots[first : first + block_size]
            places[at, : part.size], owners[at] = part, e
            at += 1
    return places.reshape(-1), owners, np.array(at * block_size, np.int32)


def moe(
    input: Array,
    w1: Array,
    w2: Array,
    expert_ids: Array,
    routing_weights: Array,
    *,
    input_scale: Array | None = None,
    input_zero_point: Array | None = None,
    w1_scale: Array | None = None,
    w1_zero_point: Array | None = None,
    w1_bias: Array | None = None,
    w2_scale: Array | None = None,
    w2_zero_point: Array | None = None,
    w2_bias: Array | None = None,
    intermediate_scale: Array | None = None,
    intermediate_zero_point: Array | None = None,
    codebook: Array | None = None,
    group_size: int | None = None,
    input_dtype: str | None = None,
    weight_dtype: str | None = None,
    weight_packing: str = _MOE["weight_packing"],
    weight_zero_mode: str | None = None,
    input_zero_mode: str | None = None,
    compute_dtype: str | None = None,
    weights_transposed: bool = _MOE["weights_transposed"],
    activation: str = _MOE["activation"],
    act_clamp: tuple[float, float] | None = None,
    gate_layout: str = _MOE["gate_layout"],
    intermediate_dtype: str = _MOE["intermediate_dtype"],
    recipe: str = _MOE["recipe"],
    rounding: str = _MOE["rounding"],
    routing_stage: str = _MOE["routing_stage"],
    skip_invalid: bool = _MOE["skip_invalid"],
    out_dtype: str = _MOE["out_dtype"],
) -> Array:
    """`out[t] = sum_k routing_weights[t,k] * (act(input[t] @ W1[e] + b1) @ W2[e] + b2)`: two grouped products.

    Shapes and the forms of the intermediate are those of the op. With `routing_stage` "input" the routing weight
    multiplies the token instead: its scale (`f32(w) * s`, `s = 1` for codes without one), or the values of a float
    token without a scale.
    """
    x, weights = np.asarray(input), np.asarray(routing_weights).astype(F32)
    shared: Keywords = {"expert_ids": expert_ids, "rhs_dtype": weight_dtype, "rhs_packing": weight_packing,
                              "codebook": codebook, "compute_dtype": compute_dtype, "skip_invalid": skip_invalid,
                              "rhs_transposed": weights_transposed}  # fmt: skip
    d = DTYPES[intermediate_dtype]
    dynamic = d.is_int and intermediate_scale is None
    if routing_stage == "input":
        x, input_scale = _weighted(x, input_scale, weights)
    first: Keywords = {"lhs_dtype": input_dtype, "lhs_scale": input_scale, "lhs_zero_point": input_zero_point,
             "lhs_zero_mode": input_zero_mode, "rhs_scale": w1_scale, "rhs_zero_point": w1_zero_point,
             "rhs_zero_mode": weight_zero_mode, "bias": w1_bias, "activation": activation, "act_clamp": act_clamp,
             "gate_layout": gate_layout, "rounding": rounding, "out_scale": intermediate_scale,
             "out_zero_point": intermediate_zero_point,
             "out_dtype": "f32" if dynamic else intermediate_dtype}  # fmt: skip
    hidden = grouped_matmul(x, w1, **_given(shared | first))
    scale, zero = intermediate_scale, intermediate_zero_point
    if dynamic:
        symmetric = d.signed and recipe in ("torchao", *SYMMETRIC_RECIPES)
        hidden, scale, zero = dynamic_quantize(hidden, out_dtype=intermediate_dtype, symmetric=symmetric,
                                               rounding=rounding, recipe=recipe)  # fmt: skip
    second: Keywords = {"lhs_dtype": intermediate_dtype, "lhs_scale": scale, "lhs_zero_point": zero,
              "rhs_scale": w2_scale, "rhs_zero_point": w2_zero_point,
              "rhs_zero_mode": weight_zero_mode, "bias": w2_bias}  # fmt: skip
    if routing_stage == "input":
        weights = np.ones_like(weights)
    return grouped_matmul(hidden, w2, **_given(shared | second), routing_weights=weights, out_dtype=out_dtype)


def _given(kw: Keywords) -> Keywords:
    return {k: v for k, v in kw.items() if v is not None}


def _weighted(x: Array, scale: Array | None, weights: Array) -> tuple[Array, Array | None]:
    """Tokens and scale times the routing weights: floats become rows `[T, topk, H]`, else the scale `[T, topk, 1]`."""
    if scale is None and x.dtype.name in ("float32", "float16", "bfloat16"):
        rows = x if x.ndim == 3 else np.broadcast_to(x[:, None], (*weights.shape, x.shape[-1]))
        return (rows.astype(F32) * weights[..., None]).astype(x.dtype), None
    s = np.asarray(1 if scale is None else scale, F32)
    s = s[:, None] if s.ndim == 2 and x.ndim == 2 else s
    rows = by_row(s, (*weights.shape, x.shape[-1]))
    return x, (rows.reshape(*weights.shape, -1) if s.ndim > 1 else s) * weights[..., None]
