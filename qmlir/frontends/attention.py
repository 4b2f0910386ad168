"""Attention as one op, `iree_linalg_ext.attention`, for a kernel of the target or the products of `qmlir-attention`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.mlir import arith, ir, math
from ..ir.build import Arg, Extent, collapse, dims, drop_axes, elementwise, empty, expand, loop_index, scalar
from ..spec import TensorSpec
from .raising import Tensor
from .tensors import cast_real, real

# Letters of axes: the heads of keys and values; and, if several query heads read each of them, these query heads.
HEADS, SHARED = "H", "G"


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, axes: Sequence[str], shape: Sequence[int | None],
    scale: float, causal: bool = False, softcap: float = 0.0,
) -> Tensor:  # fmt: skip
    """Build `softmax(scale * q k^T + mask) v` at the insertion point: f32 of `shape`; zeros where all keys are masked.

    `axes`: the letters of the axes of q, k, v, the mask and the result, each in its stored order: m for queries, k for
    keys, d for the axis that q and k share, n for columns of values, any other letter for a batch axis. "1" is a
    broadcast axis of the mask. An f32 mask is added to the scores; any other mask keeps the keys where it is not 0.
    `causal`: a query sees the keys up to its own position. `softcap`: unless it is 0, scores become
    `softcap * tanh(scores / softcap)` before the mask is added.
    """
    letters = sorted(set("".join(axes)) - {"1"})
    sizes = _sizes({axes[0]: q, axes[1]: k, axes[2]: v})
    f32 = ir.F32Type.get()
    masks = _masks(mask, axes[3], causal, sizes)
    out = empty([sizes[a] for a in axes[4]], f32)
    values = [q.value, k.value, v.value, scalar(scale, f32), *(value for value, _ in masks), out]
    read_by = [*axes[:3], "", *(a for _, a in masks), axes[4]]
    maps = [
        ir.AffineMapAttr.get(ir.AffineMap.get(len(letters), 0, [ir.AffineDimExpr.get(letters.index(a)) for a in one]))
        for one in read_by
    ]
    return Tensor(TensorSpec(tuple(shape), "f32"), _op(values, maps, bool(masks), softcap))


def _op(values: Sequence[ir.Value], maps: Sequence[ir.Attribute], masked: bool, softcap: float) -> ir.Value:
    out = values[-1]
    made = ir.Operation.create(
        "iree_linalg_ext.attention", results=[out.type], operands=list(values), regions=1,
        attributes={
            "indexing_maps": ir.ArrayAttr.get(list(maps)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, int(masked), 1]),
        },
    )  # fmt: skip
    block = made.regions[0].blocks.append(ir.F32Type.get())
    with ir.InsertionPoint(block):
        score = block.arguments[0]
        if softcap:
            cap = scalar(softcap, score.type)
            score = arith.mulf(math.tanh(arith.divf(score, cap)), cap)
        ir.Operation.create("iree_linalg_ext.yield", operands=[score])
    return made.results[0]


def _sizes(operands: Mapping[str, Tensor]) -> dict[str, Extent]:
    found: dict[str, Extent] = {}
    for letters, t in operands.items():
        for letter, size in zip(letters, dims(t.value), strict=True):
            if letter not in found or isinstance(size, int):
                found[letter] = size
    return found


def _masks(mask: Tensor | None, axes: str, causal: bool, sizes: Mapping[str, Extent]) -> list[tuple[ir.Value, str]]:
    """The values that are added to the scores, with the letters of their axes; an empty list without a mask."""
    f32 = ir.F32Type.get()
    value, letters = None, axes.replace("1", "")
    if mask is not None:
        value = drop_axes(mask.value, [i for i, a in enumerate(axes) if a == "1"])
        if mask.dtype != "f32":
            rank = tuple(range(len(letters)))
            shape = [sizes[a] for a in letters]
            value = elementwise([Arg(value, rank)], shape, f32, lambda kept: hidden(kept, f32))
    if causal:
        assert value is None
        shape, letters = [sizes["m"], sizes["k"]], "mk"

        def earlier() -> ir.Value:
            kept = arith.cmpi(arith.CmpIPredicate.ule, loop_index(1), loop_index(0))
            return hidden(kept, f32)

        value = elementwise([], shape, f32, earlier)
    return [] if value is None else [(value, letters)]


def hidden(kept: ir.Value, t: ir.Type, otherwise: float = float("-inf")) -> ir.Value:
    """0 if a key is kept (`kept` is true or a nonzero integer), else `otherwise`."""
    if kept.type != ir.IntegerType.get_signless(1):
        kept = arith.cmpi(arith.CmpIPredicate.ne, kept, arith.constant(kept.type, 0))
    return arith.select(kept, scalar(0.0, t), scalar(otherwise, t))


@dataclass(frozen=True)
class AttentionInput:
    """A tensor and the letters of its axes."""

    tensor: Tensor
    axes: str


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of an attention, kept so that a transpose of its result can build it again. `axes`: letters of the
    result; `heads`: how many query heads read the same keys."""

    q: AttentionInput
    k: AttentionInput
    v: AttentionInput
    mask: AttentionInput | None
    axes: str
    scale: float
    heads: int
    dtype: str

    def made(self, axes: str, shape: Sequence[int | None]) -> Tensor:
        """Build the attention, with a result of these axes, at the insertion point."""
        q, k, v = (AttentionInput(_as_f32(o.tensor), o.axes) for o in (self.q, self.k, self.v))
        mask = None if self.mask is None else _as_f32(self.mask.tensor)
        wide = list(shape)
        if self.heads > 1:
            q = _split(q, self.heads)
            at = axes.index(HEADS)
            heads = wide[at]
            assert heads is not None
            wide[at : at + 1] = [heads // self.heads, self.heads]
            axes = axes.replace(HEADS, HEADS + SHARED)
        letters = [q.axes, k.axes, v.axes, "" if self.mask is None else self.mask.axes, axes]
        made = attention(q.tensor, k.tensor, v.tensor, mask, letters, wide, self.scale)
        if self.heads > 1:
            groups = [[i] for i in range(len(axes))]
            at = axes.index(HEADS)
            groups[at : at + 2] = [[at, at + 1]]
            made = Tensor(TensorSpec(tuple(shape), "f32"), collapse(made.value, groups))
        return cast_real(made, self.dtype)


def _as_f32(t: Tensor) -> Tensor:
    return t if t.dtype in ("f32", "bool") else real(t)


def _split(q: AttentionInput, heads: int) -> AttentionInput:
    """Queries with their heads in two axes; heads along the inner axis read the same keys."""
    at = q.axes.index(HEADS)
    sizes = [[size] for size in dims(q.tensor.value)]
    count = q.tensor.shape[at]
    assert count is not None
    sizes[at] = [count // heads, heads]
    shape = [*q.tensor.shape[:at], count // heads, heads, *q.tensor.shape[at + 1 :]]
    spec = TensorSpec(tuple(shape), q.tensor.dtype)
    return AttentionInput(Tensor(spec, expand(q.tensor.value, sizes)), q.axes.replace(HEADS, HEADS + SHARED))
