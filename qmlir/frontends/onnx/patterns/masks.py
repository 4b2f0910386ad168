"""The mask that is added to the scores of an attention, as a sum of terms, each along the axes on which it varies.

Letters of axes: b for the batch, H for heads of keys, G for the heads of queries that share one of them, m for queries,
k for keys; "1" is an axis of an operand that is broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....core.mlir import arith, ir
from ....ir.build import Arg, Extent, as_index, dims, elementwise, expand, loop_index
from ....spec import TensorSpec
from ...attention import HEADS, SHARED, hidden
from ...raising import PatternDeclined, Tensor
from ...tensors import real

At: TypeAlias = "Mapping[str, ir.Value]"  # the index of each axis, by its letter


@dataclass(frozen=True)
class MaskTerm:
    """A summand of a mask: `value` computes it in f32 from the indices of its axes and the elements of `tensors` there.
    `axes`: the letters of each tensor's axes; `letters`: all axes along which the term varies."""

    tensors: Sequence[Tensor]
    axes: Sequence[str]
    letters: str
    value: Callable[..., ir.Value]


def as_place(x: ir.Value) -> ir.Value:
    """An integer as an index."""
    return x if isinstance(x.type, ir.IndexType) else arith.index_cast(ir.IndexType.get(), x)


def less(a: ir.Value, b: ir.Value) -> ir.Value:
    """Whether a < b, for signed integers or indices."""
    return arith.cmpi(arith.CmpIPredicate.slt, as_place(a), as_place(b))


def causal(before: Extent | Tensor, window: int = -1) -> MaskTerm:
    """A query sees the keys up to its own position, and only the last `window` of them unless that is negative.
    `before`: the number of positions before the first query, for the whole batch or for each of its rows."""

    def value(at: At, *one: ir.Value) -> ir.Value:
        first = as_index(before) if not isinstance(before, Tensor) else as_place(one[0])
        place = arith.addi(at["m"], first)
        seen = arith.cmpi(arith.CmpIPredicate.sle, at["k"], place)
        if window >= 0:
            seen = arith.andi(seen, less(place, arith.addi(at["k"], as_index(window))))
        return hidden(seen, ir.F32Type.get())

    return MaskTerm([before], ["b"], "bmk", value) if isinstance(before, Tensor) else MaskTerm([], [], "mk", value)


def flags(mask: Tensor, otherwise: float) -> MaskTerm:
    """Keys are kept where an integer mask `[B, k]` or `[B, m, k]` is not 0; `otherwise` is added to the scores
    elsewhere."""

    axes = {2: "bk", 3: "bmk"}.get(len(mask.shape))
    if axes is None:
        raise PatternDeclined(f"a mask {mask.spec}; [batch, keys] and [batch, queries, keys] are imported")
    axes = repeated(mask, axes)
    return MaskTerm([mask], [axes], axes.replace("1", ""), lambda at, x: hidden(x, ir.F32Type.get(), otherwise))


def repeated(t: Tensor, axes: str) -> str:
    """The letters of a tensor's axes, "1" for an axis of size one, except for the key axis, which every mask has."""
    return "".join("1" if size == 1 and a != "k" else a for size, a in zip(t.shape, axes, strict=True))


def between(start: Tensor | None, end: Tensor, otherwise: float) -> MaskTerm:
    """Keys from `start [B]`, or from the first one, up to but not including `end [B]` are kept."""
    tensors = [end] if start is None else [end, start]

    def value(at: At, stop: ir.Value, *begin: ir.Value) -> ir.Value:
        inside = less(at["k"], stop)
        if begin:
            inside = arith.andi(inside, arith.cmpi(arith.CmpIPredicate.sge, at["k"], as_place(begin[0])))
        return hidden(inside, ir.F32Type.get(), otherwise)

    return MaskTerm(tensors, ["b"] * len(tensors), "bk", value)


def bias(t: Tensor, heads: int, shared: int = 1) -> MaskTerm:
    """A tensor `[B or 1, heads or 1, m, k]` that is added to the scores."""
    if len(t.shape) != 4 or t.shape[1] not in (1, heads * shared):
        raise PatternDeclined(
            f"an attention_bias {t.spec}; [batch or 1, {heads * shared} or 1, queries, keys] is taken"
        )
    wide = real(t) if t.shape[1] == 1 or shared == 1 else in_heads(real(t), 1, heads)
    axes = repeated(wide, f"b{HEADS}mk" if len(wide.shape) == 4 else f"b{HEADS}{SHARED}mk")
    return MaskTerm([wide], [axes], axes.replace("1", ""), lambda at, x: x)


def mask_of(terms: Sequence[MaskTerm], sizes: Mapping[str, Extent]) -> tuple[Tensor | None, str]:
    """The sum of the terms and the letters of its axes; None without terms. `sizes`: the size of each axis."""
    if not terms:
        return None, ""
    letters = "".join(a for a in f"b{HEADS}{SHARED}mk" if any(a in t.letters for t in terms))
    args = [Arg(t.value, tuple(None if a == "1" else letters.index(a) for a in axes))
            for term in terms for t, axes in zip(term.tensors, term.axes, strict=True)]  # fmt: skip

    def body(*scalars: ir.Value) -> ir.Value:
        left = list(scalars)
        at = {a: loop_index(i) for i, a in enumerate(letters)}
        values = [term.value(at, *(left.pop(0) for _ in term.tensors)) for term in terms]
        total = values[0]
        for more in values[1:]:
            total = arith.addf(total, more)
        return total

    shape = [sizes[a] for a in letters]
    made = elementwise(args, shape, ir.F32Type.get(), body)
    return Tensor(TensorSpec(tuple(s if isinstance(s, int) else None for s in shape), "f32"), made), letters


def in_heads(t: Tensor, axis: int, *counts: int) -> Tensor:
    """Split an axis into axes of the sizes `counts` and one of the remaining size."""
    size, whole = t.shape[axis], 1
    for count in counts:
        whole *= count
    if not size or size % whole:
        raise PatternDeclined(f"a size of {size} along axis {axis} of {t.spec} for {whole} heads")
    parts = [*counts, size // whole]
    groups: list[list[Extent]] = [[s] for s in dims(t.value)]
    groups[axis] = [*parts]
    return Tensor(TensorSpec((*t.shape[:axis], *parts, *t.shape[axis + 1 :]), t.dtype), expand(t.value, groups))
