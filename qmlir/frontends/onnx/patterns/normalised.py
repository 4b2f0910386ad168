"""Layer normalisations as onnxruntime's optimisers write them: alone, after a residual sum, or after embeddings.

Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....core.mlir import arith, ir, math
from ....ir.build import Arg, Extent, as_index, crop, dims, expand, filled, generic, product
from ....ir.checks import assert_that
from ....ir.scalars import const
from ....spec import TensorSpec
from ...raising import NotQuantised, PatternDeclined, Tensor, raises
from ...tensors import cast_real, elementwise, real
from ..model import refuse
from ..node import Node
from .common import onnx_op, scale_of, zero_of

RowNumbers: TypeAlias = "Callable[[Tensor], Tensor]"  # converts rows of a table to floats


def normalised(
    x: Tensor, scale: Tensor, shift: Tensor | None, epsilon: float, *, centred: bool = True, axis: int = -1
) -> Tensor:
    """`(x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + shift` over the axes from `axis` on, in f32; the mean
    is taken to be 0 if not `centred` (RMS normalisation). The result has x's dtype."""
    wide = real(x)
    first = axis % len(x.shape)
    mean = _mean(wide, None, first) if centred else None
    square = _mean(wide, mean, first, square=True)
    parts = [t for t in (wide, mean, square, real(scale), None if shift is None else real(shift)) if t is not None]

    def body(v: ir.Value, *rest: ir.Value) -> ir.Value:
        *middle, variance, factor = rest if shift is None else rest[:-1]
        v = arith.subf(v, middle[0]) if middle else v
        v = arith.mulf(arith.mulf(v, math.rsqrt(arith.addf(variance, const(epsilon)))), factor)
        return v if shift is None else arith.addf(v, rest[-1])

    return cast_real(elementwise(body, parts, "f32"), x.dtype)


def _mean(x: Tensor, less: Tensor | None, first: int, square: bool = False) -> Tensor:
    """The mean of `x - less`, or of its square, over the axes from `first` on, which are kept with size one."""
    rank, sizes = len(x.shape), dims(x.value)
    rows = tuple(range(first))
    args = [Arg(x.value, tuple(range(rank)))]
    if less is not None:
        args.append(Arg(less.value, (*rows, *[None] * (rank - first))))

    def step(v: ir.Value, *rest: ir.Value) -> ir.Value:
        v = arith.subf(v, rest[0]) if less is not None else v
        return arith.addf(rest[-1], arith.mulf(v, v) if square else v)

    total = generic(args, filled(sizes[:first], const(0.0)), rows, rank, step)
    spec = TensorSpec(x.shape[:first], "f32")
    count = product(sizes[first:])

    def divided(v: ir.Value) -> ir.Value:
        if isinstance(count, int):
            return arith.divf(v, const(float(count)))
        return arith.divf(v, arith.uitofp(v.type, arith.index_cast(ir.IntegerType.get_signless(32), count)))

    mean = elementwise(divided, [Tensor(spec, total)], "f32")
    if not first:
        return mean
    groups: list[list[Extent]] = [[size] for size in sizes[:first]]
    ones = [1] * (rank - first)
    groups[-1] += ones
    return Tensor(TensorSpec((*spec.shape, *ones), "f32"), expand(mean.value, groups))


# ---------------------------------------------------------------------------------------------- operators


def _epsilon(op: Node) -> float:
    return float(op.attributes.get("epsilon", 1e-12 if op.op_type.startswith("com.") else 1e-5))


def only(op: Node, *wanted: int) -> None:
    """Refuse results other than those `wanted`, which are meant for training."""
    for i, name in enumerate(op.proto.output):
        if op.wants(i) and i not in wanted:
            raise refuse(
                f"result {i} of {op.op_type} ({name!r}) is not imported: it is used only for training", op.where
            )


@raises("onnx.LayerNormalization", "onnx.SimplifiedLayerNormalization")
def layer_normalization(op: Node) -> Tensor:
    """The operator that onnxruntime's optimisers add to models of any opset; the mean is taken to be 0 in
    SimplifiedLayerNormalization. ONNX's own LayerNormalization, of opset 17, is imported by torch-mlir."""
    simple = op.op_type == "SimplifiedLayerNormalization"
    if not simple and op.opset >= 17:
        raise NotQuantised
    only(op, 0)
    op.plain = True
    axis = int(op.attributes.get("axis", -1))
    x = op.operand(0)
    made = normalised(x, op.operand(1), None if simple else op.optional(2), _epsilon(op), centred=not simple, axis=axis)
    return op.sized_as(0, made)


@raises("onnx.com.microsoft.SkipLayerNormalization", "onnx.com.microsoft.SkipSimplifiedLayerNormalization")
def skip_layer_normalization(op: Node) -> list[Tensor]:
    """(input, skip, gamma, beta, bias): the normalised sum of input, skip and bias, and the sum. The simplified form
    takes the mean to be 0 and has no beta."""
    simple = op.op_type.endswith("SkipSimplifiedLayerNormalization")
    only(op, 0, 3)
    op.plain = True
    beta, bias = (None, op.optional(3)) if simple else (op.optional(3), op.optional(4))
    x = op.operand(0)
    total = added(*(real(t) for t in (x, op.operand(1), bias) if t is not None))
    made = cast_real(normalised(total, op.operand(2), beta, _epsilon(op), centred=not simple), x.dtype)
    whole = cast_real(total, x.dtype)
    return [op.sized_as(0, made), made, made, op.sized_as(0, whole, 3)]


def added(*terms: Tensor) -> Tensor:
    """The sum of f32 tensors, which broadcast, from the first to the last."""

    def body(*xs: ir.Value) -> ir.Value:
        value = xs[0]
        for x in xs[1:]:
            value = arith.addf(value, x)
        return value

    return elementwise(body, terms, "f32")


@raises("onnx.com.microsoft.EmbedLayerNormalization")
def embed_layer_normalization(op: Node) -> list[Tensor]:
    """(input_ids, segment_ids, word, position, segment embeddings, gamma, beta, mask, position_ids): the normalised
    sum of the embeddings, the number of words that the mask keeps, and the sum."""
    op.plain = True
    tables = [op.operand(2), op.operand(3), op.optional(4)]
    return _embedded(op, tables, [lambda rows: rows] * 3, op.operand(5), op.operand(6))


@raises("onnx.com.microsoft.QEmbedLayerNormalization")
def coded_embed_layer_normalization(op: Node) -> list[Tensor]:
    """EmbedLayerNormalization with quantised tables: scales are inputs 8 to 12, zero points inputs 13 to 17."""

    def number(i: int) -> RowNumbers:
        """The function that dequantises rows of input `2 + i`."""

        def numbers(codes: Tensor) -> Tensor:
            made: Tensor = op.build("dequantize", input=codes, scale=scale_of(op.operand(8 + i)),
                                    zero_point=zero_of(op.optional(13 + i)), dtype=codes.dtype)  # fmt: skip
            return made

        return numbers

    tables = [op.operand(2), op.operand(3), op.optional(4)]
    gamma, beta = (number(i)(op.operand(2 + i)) for i in (3, 4))
    return _embedded(op, tables, [number(i) for i in range(3)], gamma, beta)


def _embedded(
    op: Node, tables: Sequence[Tensor | None], numbers: Sequence[RowNumbers], gamma: Tensor, beta: Tensor
) -> list[Tensor]:
    """The normalised sum of rows of the tables of words, positions and segments, each converted by its entry of
    `numbers`; the number of words that the mask keeps; and the sum."""
    ids, segments, mask = op.operand(0), op.optional(1), op.optional(7)
    places = op.optional(8) if op.proto.op_type == "EmbedLayerNormalization" else None
    rows = []
    for table, number, at in zip(tables, numbers, (ids, places, segments), strict=True):
        if table is None or (at is None and table is not tables[1]):
            continue
        rows.append(number(_first(op, table, ids) if at is None else onnx_op(op, "Gather", table, at, axis=0)))
    total = added(*map(real, rows))
    dtype, width = rows[0].dtype, rows[0].shape[-1]
    made = cast_real(normalised(total, gamma, beta, _epsilon(op)), dtype)
    counts = _counts(ids, mask)
    names = (*op.named(0), width or "")
    return [op.sized(made, names), op.sized(counts, names[:1], 1), op.sized(cast_real(total, dtype), names, 2)]


def _first(op: Node, table: Tensor, ids: Tensor) -> Tensor:
    """The first rows of a table, as many as `ids` has columns."""
    rows, width = dims(table.value)
    count = dims(ids.value)[1]
    if isinstance(count, int) and isinstance(rows, int) and count > rows:
        raise PatternDeclined(f"{count} words for {rows} positions")
    if not (isinstance(count, int) and isinstance(rows, int)):
        fits = arith.cmpi(arith.CmpIPredicate.ule, as_index(count), as_index(rows))
        assert_that(fits, f"{op.where}: more words than the table of positions has rows")
    made = crop(table.value, [0, 0], [count, width])
    return Tensor(TensorSpec((ids.shape[1], table.shape[1]), table.dtype), made)


def _counts(ids: Tensor, mask: Tensor | None) -> Tensor:
    """The number of words that the mask keeps in each row of `ids`, i32; 0 without a mask."""
    made = filled(dims(ids.value)[:1], arith.constant(ir.IntegerType.get_signless(32), 0))
    if mask is not None:
        made = generic([Arg(mask.value, (0, 1))], made, (0,), 2, arith.addi)
    return Tensor(TensorSpec(ids.shape[:1], "i32"), made)
