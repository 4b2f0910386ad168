"""Grouped products, routing and mixture-of-experts layers (docs/semantics.md, section 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from .interval import EPS, Arithmetic, Interval, point
from .products import GATES, Contraction, Epilogue, Side, along, gated, side
from .rounding import FORMATS, ZERO, Number, mul
from .tensor import Index, Tensor, broadcast, exact, fill, read
from .values import dynamic_quantize

F32 = FORMATS["f32"]


class _Grouped(Epilogue):
    """The epilogue of a grouped product: a bias `[G, N]` has one row per group."""

    expert: Any = None

    def look(self, name: str, i: Index) -> Any:
        t = self.operands[name]
        if name == "bias" and len(t.shape) == 2:
            return broadcast(t, (self.expert(i), i[-1]))
        return super().look(name, i)


def grouped_matmul(lhs: Any, rhs: Any, *, fused: bool = False, **kw: Any) -> Tensor:
    """`qmlir.grouped_matmul`. Raises ValueError for invalid sizes or ids."""
    transposed, packing = kw.get("rhs_transposed", False), kw.get("rhs_packing", "none")
    a = side(lhs, kw["lhs_dtype"], kw, "lhs")
    b = side(rhs, kw["rhs_dtype"], kw, "rhs", packing, a.codes.shape[-1] if transposed and packing != "none" else None)
    return grouped(a, b, kw, fused)


def _experts(kw: Mapping[str, Any], rows: int, groups: int) -> Tensor:
    """The expert of each row or slot."""
    if kw.get("group_sizes") is not None:
        sizes = read(kw["group_sizes"]).data
        if min(sizes, default=0) < 0 or sum(sizes) != rows:
            raise ValueError("group_sizes")
        return Tensor((rows,), [g for g, size in enumerate(sizes) for _ in range(size)])
    ids = read(kw["expert_ids"])
    if not kw.get("skip_invalid") and any(not 0 <= e < groups for e in ids.data):
        raise ValueError("expert_ids")
    return ids


def grouped(a: Side, b: Side, kw: Mapping[str, Any], fused: bool) -> Tensor:
    """A grouped product of sides `[M, K]`, `[T, K]` or `[T, topk, K]`, and `[G, K, N]` or `[G, N, K]`."""
    f = Arithmetic(fused)
    transposed = kw.get("rhs_transposed", False)
    groups, n = b.codes.shape[0], b.codes.shape[1 if transposed else 2]
    k = a.codes.shape[-1]
    experts = _experts(kw, a.codes.shape[0], groups)
    weights = None if kw.get("routing_weights") is None else read(kw["routing_weights"])
    shape = (*experts.shape, n)
    # Weighted slots stay f32 until they are added.
    inner = dict(kw) if weights is None else {**kw, "out_dtype": "f32"}
    epilogue = _Grouped(inner, shape, (*experts.shape, gated(n, kw)), f)
    epilogue.expert = lambda i: experts[i[:-1]]
    contraction = Contraction(a, b, f, kw.get("compute_dtype"))
    by_group = along(a, -1) or along(b, -1 if transposed else -2)

    def total(i: Index) -> Interval | int:
        row = i[: len(a.codes.shape) - 1]
        e = experts[i[:-1]]

        def pair(q: int) -> tuple[Index, Index]:
            return (*row, q), (e, i[-1], q) if transposed else (e, q, i[-1])

        return contraction.total(map(pair, range(k)), pair(0), epilogue.acc_bias(i), by_group)

    def slot(i: Index) -> Interval:
        if not 0 <= experts[i[:-1]] < groups:
            return point(ZERO)
        if epilogue.out == "i32":
            return point(Fraction(epilogue._raw(total(i), i)))
        return epilogue.output(epilogue.activated(lambda j: epilogue.before_gate(total(j), j), i), i)

    slots = fill(epilogue.result, slot)
    if weights is None:
        return slots
    return combined(slots, weights, kw.get("out_dtype", "f32"), f)


def combined(slots: Tensor, weights: Tensor, out: str, f: Arithmetic) -> Tensor:
    """`sum_k w[t, k] * slots[t, k]` in f32, `k` ascending, then the cast."""

    def element(i: Index) -> Interval:
        total = point(ZERO)
        for k in range(slots.shape[1]):
            total = f.add(total, f.mul(point(F32.round(exact(weights[i[0], k]))), slots[i[0], k, i[1]]))
        return total.through(FORMATS[out].round)

    return fill((slots.shape[0], slots.shape[2]), element)


def route(logits: Any, *, topk: int, scoring: str = "softmax", renormalize: bool = False) -> tuple[Tensor, Tensor]:
    """`qmlir.route`."""
    x = read(logits)
    ids: list[int] = []
    weights: list[Interval] = []
    for t in range(x.shape[0]):
        row = [float(x[t, e]) for e in range(x.shape[1])]
        order = sorted(range(len(row)), key=lambda e: (math.isnan(row[e]), -row[e], e))[:topk]
        if scoring == "softmax":
            top = max(row)
            every = [math.exp(v - top) for v in row]
            if math.isnan(sum(row)):
                ids += order
                weights += [point(math.nan)] * topk
                continue
            scores = [Fraction(every[e]) / Fraction(math.fsum(every)) for e in order]
        else:
            scores = [Fraction(1 / (1 + math.exp(-row[e]))) for e in order]
        if renormalize:
            scores = [s / sum(scores) for s in scores]
        ids += order
        weights += [point(s).widened(abs(s) * (16 + len(row)) * EPS + Fraction(1, 2**60)) for s in scores]
    return Tensor((x.shape[0], topk), ids), Tensor((x.shape[0], topk), weights)


def moe_align_block_size(
    expert_ids: Any, *, experts: int, block_size: int, skip_invalid: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """`qmlir.moe_align_block_size`."""
    ids = read(expert_ids).data
    if not skip_invalid and any(not 0 <= e < experts for e in ids):
        raise ValueError("expert_ids")
    places: list[int] = []
    owners: list[int] = []
    for e in range(experts):
        own = [slot for slot, chosen in enumerate(ids) if chosen == e]
        while len(own) % block_size:
            own.append(len(ids))
        places += own
        owners += [e] * (len(own) // block_size)
    blocks = min(len(ids), -(-len(ids) // block_size) + experts - 1)
    used = len(places)
    places += [len(ids)] * (blocks * block_size - used)
    owners += [-1] * (blocks - len(owners))
    return Tensor((blocks * block_size,), places), Tensor((blocks,), owners), Tensor((), [used])


# --------------------------------------------------------------------------------------------------- layers


def _intermediate(first: Tensor, dtype: str, kw: Mapping[str, Any]) -> tuple[Side, Tensor]:
    """The (quantised) intermediate of a layer, and the possible error of each of its real values: the first product
    and its activation have a tolerance."""
    given = kw.get("intermediate_scale")
    if dtype not in ("i8", "u8"):
        to = FORMATS[kw.get("compute_dtype") or dtype].round
        off = first.map(lambda v: exact(to(v.hi)) - exact(to(v.lo)))
        return Side(first.map(lambda v: v.lo), dtype, None, None, "none", None, Fraction(1)), off
    zero = None
    if given is not None:
        scale = Tensor((), [exact(read(given).data[0])])
        if kw.get("intermediate_zero_point") is not None:
            zero = Tensor((), read(kw["intermediate_zero_point"]).data[:1])
        codes = first.map(lambda v: int(v.lo))
        off = first.map(lambda v: (int(v.hi) - int(v.lo)) * exact(scale.data[0]))
    else:
        recipe = kw.get("recipe", "torchao")
        symmetric = dtype == "i8" and recipe not in ("onnx", "fbgemm")
        made = dynamic_quantize(first.map(lambda v: v.middle), symmetric=symmetric, recipe=recipe, out_dtype=dtype,
                                rounding=kw.get("rounding", "half_even"))  # fmt: skip
        codes, scale = made[:2]
        zero = None if symmetric else made[2]
        widths = first.map(lambda v: v.hi - v.lo)
        # If the row's scale may differ, a code may be the next one, and its real value changes slightly.
        steps = fill(first.shape, lambda i: exact(scale[(*i[:-1], 0)])
                     if any(widths[(*i[:-1], q)] for q in range(first.shape[-1])) else ZERO)  # fmt: skip
        off = fill(first.shape, lambda i: 2 * widths[i] + 2 * exact(steps[i]))
    return Side(codes, dtype, scale, zero, "none" if zero is None else "int", None, Fraction(1)), off


def moe(input: Any, w1: Any, w2: Any, expert_ids: Any, routing_weights: Any, *, fused: bool = False,
        **kw: Any) -> Tensor:  # fmt: skip
    """`qmlir.moe`. The second product uses one intermediate; the intermediate's possible error widens the results."""
    weights, transposed = read(routing_weights), kw.get("weights_transposed", False)
    packing, dtype = kw.get("weight_packing", "none"), kw["weight_dtype"]
    shared = {"expert_ids": expert_ids, "skip_invalid": kw.get("skip_invalid", False), "rhs_transposed": transposed,
              "rounding": kw.get("rounding", "half_even"), "compute_dtype": kw.get("compute_dtype")}  # fmt: skip

    def weight(array: Any, which: str, k: int) -> Side:
        zero = kw.get(f"{which}_zero_point")
        mode = kw.get("weight_zero_mode", "none")
        mode = mode if zero is not None or mode.startswith("offset") else "none"
        own = {"rhs_scale": kw.get(f"{which}_scale"), "rhs_zero_point": zero, "rhs_zero_mode": mode,
               "codebook": kw.get("codebook")}  # fmt: skip
        return side(array, dtype, own, "rhs", packing, k if transposed and packing != "none" else None)

    def bias(which: str) -> dict[str, Any]:
        given = kw.get(f"{which}_bias")
        if given is None:
            return {}
        return {"bias": given, "bias_stage": "acc" if given.dtype.kind == "i" else "scaled"}

    own_kw = {"lhs_scale": kw.get("input_scale"), "lhs_zero_point": kw.get("input_zero_point"),
                                        "lhs_zero_mode": kw.get("input_zero_mode", "none")}  # fmt: skip
    a = side(input, kw["input_dtype"], own_kw, "lhs")
    early = kw.get("routing_stage") == "input"
    if early:
        a = _weighted(a, weights)
    between = kw.get("intermediate_dtype", "f32")
    dynamic = between in ("i8", "u8") and kw.get("intermediate_scale") is None
    first_kw = {**shared, **bias("w1"), "activation": kw.get("activation", "none"), "act_clamp": kw.get("act_clamp"),
                "gate_layout": kw.get("gate_layout", "halves"), "out_dtype": "f32" if dynamic else between,
                "out_scale": kw.get("intermediate_scale"),
                "out_zero_point": kw.get("intermediate_zero_point")}  # fmt: skip
    first = grouped(a, weight(w1, "w1", a.codes.shape[-1]), first_kw, fused)
    hidden, off = _intermediate(first, between, kw)
    second_kw = {**shared, **bias("w2"), "out_dtype": "f32"}
    last = weight(w2, "w2", hidden.codes.shape[-1])
    slots = grouped(hidden, last, second_kw, fused)
    ids = read(expert_ids)

    def widened(i: Index) -> Interval:
        e, k = ids[i[:-1]], range(hidden.codes.shape[-1])
        if not 0 <= e < last.codes.shape[0]:
            return slots[i]  # a skipped slot contributes nothing
        amounts = (off[(*i[:-1], q)] * abs(last.real((e, i[-1], q) if transposed else (e, q, i[-1]), None)) for q in k)
        amount = sum(amounts, ZERO)
        # Sums that differ are also rounded differently.
        return slots[i].widened(amount + 2 * EPS * abs(exact(slots[i].hi))) if amount else slots[i]

    slots = fill(slots.shape, widened)
    if early:
        weights = weights.map(lambda _: Fraction(1))
    return combined(slots, weights, kw.get("out_dtype", "f32"), Arithmetic(fused))


def _weighted(a: Side, weights: Tensor) -> Side:
    """The tokens for `routing_stage = input`: their scale is `f32(w) * s`. Plain floats without a scale are multiplied
    by `f32(w)` and rounded to their type."""
    topk = weights.shape[1]
    shape = (weights.shape[0], topk, a.codes.shape[-1])

    def of(i: Index) -> Index:
        return i if len(a.codes.shape) == 3 else (i[0], i[2])

    codes = fill(shape, lambda i: a.codes[of(i)])
    w = weights.map(lambda v: F32.round(exact(v)))
    if a.plain:
        to = FORMATS[a.dtype]
        return Side(
            fill(shape, lambda i: to.round(_product(w[i[:2]], codes[i]))), a.dtype, None, None, "none", None, a.whole
        )
    from .tensor import blockwise

    zero = a.zero and fill(shape, lambda i: blockwise(a.zero, of(i), a.codes.shape, 0))
    k = shape[-1] if along(Side(a.codes, a.dtype, a.scale, None, "none", None, a.whole), -1) else 1
    scale = fill((*shape[:2], k), lambda i: mul(w[i[:2]], blockwise(a.scale, of(i), a.codes.shape, Fraction(1))))
    return Side(codes, a.dtype, scale, zero, a.mode, None, a.whole)


def _product(x: Number, y: Number) -> Number:
    return mul(x, y)


__all__ = ["GATES", "grouped_matmul", "moe", "moe_align_block_size", "route"]
