"""From a contraction to the kernel that it is the heart of: the contraction, the sum over groups behind it, and the
elementwise ops that only it feeds.

Nothing is changed here. `describe` reads the IR and returns a `Kernel`, or raises `Unfit` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir.affine import indexing_maps
from ..ir.walk import made_by, producer, producer_name
from .bodies import computable, scalar_constant, unclonable
from .description import (
    BATCH,
    COLUMN,
    GROUP,
    ROW,
    Batch,
    Factor,
    Gate,
    Kernel,
    Literal,
    Operand,
    Previous,
    Source,
    Stage,
    Unfit,
    Window,
)
from .scaled import constant_scalar, decodes_e2m1, scaled

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_MULTIPLY_ADD = {"arith.extsi", "arith.muli", "arith.addi", "linalg.yield"}
_FLOAT_MULTIPLY_ADD = {"arith.extf", "arith.mulf", "arith.addf", "linalg.yield"}
# What the lowering puts behind values that other targets may not fuse.
KEPT_APART = ("flow.tensor.tie_shape", "util.optimization_barrier")
# Attributes with the largest |code| of each side, which the lowering leaves on contractions.
# The attribute of what counts the matrices whose blocks have ended, which the lowering sets to the rows of a block.
ENDED_BLOCKS = "qmlir.ended_blocks"
_MAGNITUDES = ("qmlir.lhs_magnitude", "qmlir.rhs_magnitude")


@dataclass(frozen=True)
class _Axis:
    """An axis of the kernel as the program has it: a batch's rows are several axes with the letter of rows."""

    letter: str
    number: int
    size: int | None


_Axes = tuple[_Axis, ...]


def describe(op: OpLike, extended: bool = False, decoded_batches: bool = False, small_floats: bool = False) -> Kernel:
    """The kernel of the contraction `op`: of integer codes, or of floats by a weight that is made of codes.

    What not every generator has is found only when it asks for it (`extended`): batches of products, gates, float
    activations that are widened in front of the product, decodes that are tables of whatever form, and products of
    one-byte floats. With `decoded_batches` a batch may be of floats, whose weights are decoded by arithmetic. With
    `small_floats` codes of e2m1 on both sides are multiplied as integers, and bodies may read floats of one byte.

    Raises:
        Unfit: where it is none.
    """
    value, init = op.results[0], op.operands[2]
    axes = _with_batch(op, _loops_of_contraction(op))
    maps = [_axes_of(m, axes) for m in indexing_maps(op)]
    if any(m is None for m in maps):
        raise Unfit("an operand is not read by whole axes", "a product of plain matrices")
    lhs_axes, rhs_axes, out_axes = (m for m in maps if m is not None)
    names = {o.name for o in op.regions[0].blocks[0].operations}
    floating = isinstance(value.type.element_type, ir.F32Type)
    if extra := ", ".join(sorted(names - (_FLOAT_MULTIPLY_ADD if floating else _MULTIPLY_ADD))):
        raise Unfit(f"its body holds {extra}", "signed integer codes on both sides, or floats and a weight of codes")
    if not is_zero_fill(init):
        raise Unfit("it adds to a tensor that is no fill of zero", "add the other tensor behind the product")
    if any(a.letter == BATCH for a in axes) and not extended:
        raise Unfit("a batch of products, each with weights of its own", "one weight for all rows")
    groups = [a for a in axes if a.letter == GROUP]
    depth = [a for a in axes if a.letter == "k"]
    batch = tuple(a for a in axes if a.letter == BATCH)
    lhs = _factor(op, 0, lhs_axes, ("b", "m", "g", "k"))
    rhs = _factor(op, 1, rhs_axes, ("b", "n", "g", "k"))
    rows = tuple(a for a in lhs_axes if a.letter == ROW)
    columns = tuple(a for a in rhs_axes if a.letter == COLUMN)
    if len(columns) != 1 or len(depth) < 1 or any(a.size is None for a in (*columns, *depth, *groups)):
        raise Unfit("N or K is dynamic, or N is more than one axis", "a static [N, K] weight")
    if batch and (len(rows) != 1 or rows[0].size is None):
        raise Unfit("products of a batch with a dynamic number of rows", "blocks of a static size")
    group = _product([a.size for a in depth]) if groups else None
    fraction, acc = None, value.type.element_type
    codes = _both_of_e2m1(lhs, rhs) if small_floats and floating and not batch else None
    if codes is not None:
        (lhs, rhs), fraction, acc = codes, 0.25, ir.IntegerType.get_signless(32)
    elif floating and not (extended and all(_one_byte(side.value) for side in (lhs, rhs))):
        if (batch and not decoded_batches) or groups or len(depth) != 1:
            raise Unfit(
                "a float product in groups, or a batch of them", "one weight, dequantised in front of the product"
            )
        lhs = replace(lhs, value=_narrow(lhs.value) if extended else lhs.value)
        rhs = _decoded(rhs, extended and not decoded_batches)
        group = _group_of(rhs)
    products = None
    if batch:
        products, rhs = _products(batch[0], _ungrouped(rhs))
        products, lhs = gathered_rows(products, _ungrouped(lhs))
        products = replace(products, counts=_counts(products, rows[0].size))
    chain = _Chain(value, out_axes, rows, columns[0], batch, small_floats)
    if groups:
        chain.combine(groups)
    elif out_axes != (*batch, *rows, columns[0]):
        raise Unfit("the result is transposed", "a result [M, N]")
    chain.grow(gates=extended)
    k = _product([a.size for a in (*groups, *depth)])
    assert k is not None
    assert columns[0].size is not None
    return Kernel(
        m=_product([a.size for a in rows]),
        n=columns[0].size,
        k=k,
        lhs=lhs,
        rhs=rhs,
        acc_type=acc,
        result_type=chain.value.type.element_type,
        group=group,
        fraction=fraction,
        combine=chain.total,
        total_type=chain.total_type,
        stages=tuple(chain.stages),
        row_sizes=tuple(a.size for a in chain.rows),
        batch=products,
        gate=chain.gate,
        operations=(op, *chain.operations),
    )


def _with_batch(op: OpLike, axes: _Axes) -> _Axes:
    """Axes that all three tensors have are groups along K; where the activation and the result begin with one, it is a
    batch of products."""
    lhs, _, out = (_positions(m) for m in indexing_maps(op))
    if not lhs or not out or lhs[0] != out[0] or axes[lhs[0]].letter != GROUP:
        return axes
    return tuple(replace(a, letter=BATCH) if a.number == lhs[0] else a for a in axes)


def _ungrouped(factor: Factor) -> Factor:
    """The tensor in front of a view that splits K of rows or matrices that an index picks into groups."""
    *outer, last, k = factor.source_axes
    if producer_name(factor.value) != "tensor.expand_shape" or (last, k) != (GROUP, "k"):
        return factor
    view = factor.value.owner.operation
    split = [len(list(group)) for group in view.attributes["reassociation"]]
    if split != [1] * len(outer) + [2] or gather(view.operands[0]) is None:
        return factor
    return replace(factor, value=view.operands[0], source_axes=(*outer, "k"))


def _products(axis: _Axis, rhs: Factor) -> tuple[Batch, Factor]:
    """The batch, and the weight that its matrices are picked from."""
    gathered = gather(rhs.value)
    if rhs.source_axes[0] != BATCH:
        raise Unfit("the matrices of the weight are not its first axis", "a weight [B, N, K]")
    if gathered is None:
        return Batch(axis.size, axis.size or 0), rhs
    source, index = gathered
    if ir.RankedTensorType(index.type).rank != 1:
        raise Unfit("the matrices are picked by more than one axis", "one matrix a product")
    matrices = _size(source, 0)
    if matrices is None:
        raise Unfit("the number of matrices is dynamic", "a static [G, N, K] weight")
    return Batch(axis.size, matrices, unbounded(index, matrices)), replace(rhs, value=source)


def gathered_rows(batch: Batch, lhs: Factor, dynamic: bool = False) -> tuple[Batch, Factor]:
    """Rows that are picked from an activation by an index are read from where they are; also where their number, or
    that of the products, is `dynamic`."""
    gathered = gather(lhs.value)
    if gathered is None or ir.RankedTensorType(gathered[1].type).rank != 2:
        return batch, lhs
    source, rows = gathered
    source, repeats = repeated(source)
    if not dynamic and None in (batch.size, _size(source, 0)):
        return batch, lhs
    if _size(source, 0) == 1:
        repeats = 2**31 - 1  # one row is all rows, whatever the index says (passes/lower/grouped.py: slot_rows)
    flipped = _flipped(source)
    if flipped is not None:
        lhs = replace(lhs, flipped=True)
        source = flipped
    return replace(batch, rows=rows, repeats=repeats), replace(lhs, value=source, source_axes=(ROW, "k"))


def repeated(source: ir.Value) -> tuple[ir.Value, int]:
    """Rows `[T, ..]`, and how often each of them stands in `source`, one behind the other."""
    if producer_name(source) == "tensor.collapse_shape":
        # `[T, X, K]`, in which a generic wrote each row of `[T, K]` X times.
        owner = source.owner.operation
        copy = producer_name(owner.operands[0]) == "linalg.generic" and owner.operands[0].owner.operation
        if copy and len(copy.operands) == 2 and _positions(indexing_maps(copy)[0]) == [0, 2] and _only_yields(copy):
            size = _size(owner.operands[0], 1)
            if size is not None and ir.RankedTensorType(owner.operands[0].type).rank == 3:
                return copy.operands[0], size
    return source, 1


def _only_yields(op: OpLike) -> bool:
    block = op.regions[0].blocks[0]
    last = next(iter(block.operations)).operation
    return bool(last.name == "linalg.yield" and last.operands[0] == block.arguments[0])


def gather(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The source `[R, ..]` and the index `[..]` (i32) of a tensor whose first axes are rows that an index picks, and
    whose last ones are all of the source's other axes."""
    while producer_name(value) in KEPT_APART:
        value = value.owner.operation.operands[0]
    if producer_name(value) != "linalg.generic":
        return None
    op = value.owner.operation
    maps = indexing_maps(op)
    if len(op.operands) != 2 or maps[-1] != ir.AffineMap.get_identity(maps[-1].n_dims):
        return None
    depth = len(list(maps[0].results))
    if _positions(maps[0]) != list(range(depth)):
        return None
    block = op.regions[0].blocks[0]
    known: dict[ir.Value, int | str] = {block.arguments[0]: "row"}
    source: Any = None
    for inner in block.operations:
        operation = inner.operation
        if operation.name == "arith.index_cast" and operation.operands[0] in known:
            known[operation.results[0]] = known[operation.operands[0]]
        elif operation.name == "linalg.index":
            known[operation.results[0]] = int(operation.attributes["dim"].value)
        elif operation.name == "tensor.extract" and source is None:
            picked, *where = operation.operands
            axes = [known.get(w, "zero" if _is_zero(w) else None) for w in where]
            # The index of an axis of one element is a constant.
            inner = range(depth, maps[-1].n_dims)
            wanted = [{"row"}, *({d} if _size(op.results[0], d) != 1 else {d, "zero"} for d in inner)]
            if len(axes) != len(wanted) or any(a not in w for a, w in zip(axes, wanted, strict=True)):
                return None
            source, known[operation.results[0]] = picked, "value"
        elif operation.name == "linalg.yield" and known.get(operation.operands[0]) == "value":
            return source, op.operands[0]
        else:
            return None
    return None


def _is_zero(value: ir.Value) -> bool:
    attribute = scalar_constant(value)
    return isinstance(attribute, ir.IntegerAttr) and attribute.value == 0


def unbounded(index: ir.Value, size: int) -> ir.Value:
    """The index in front of an elementwise op that only brings what is outside of `[0, size)` to the nearest end."""
    if producer_name(index) != "linalg.generic" or len(index.owner.operation.operands) != 2:
        return index
    op = index.owner.operation
    if any(m != ir.AffineMap.get_identity(1) for m in indexing_maps(op)):
        return index
    value = op.regions[0].blocks[0].arguments[0]
    bounds: list[tuple[str, int]] = []
    for inner in op.regions[0].blocks[0].operations:
        operation = inner.operation
        if operation.name == "linalg.yield":
            same = operation.operands[0] == value and sorted(bounds) == [("maxsi", 0), ("minsi", size - 1)]
            return op.operands[0] if same else index
        name = operation.name.removeprefix("arith.")
        bound = scalar_constant(operation.operands[1]) if name in ("minsi", "maxsi") else None
        if bound is None or operation.operands[0] != value:
            return index
        bounds.append((name, int(bound.value)))
        value = operation.results[0]
    return index


def _counts(batch: Batch, rows: int | None) -> tuple[ir.Value, ir.Value] | None:
    """`Batch.counts` where products are blocks of `rows` rows (passes/core/lower/blocks.py): the index of a block
    counts the matrices whose blocks end at or before it, from where they start and how many they have, which is
    `ceil(rows of a matrix / rows of a block)`."""
    ended = None if batch.index is None else made_by(batch.index, "linalg.generic")
    if ended is None or ENDED_BLOCKS not in ended.attributes or ended.attributes[ENDED_BLOCKS].value != rows:
        return None
    start, blocks, _ = ended.operands
    rounded = made_by(blocks, "linalg.generic")
    return None if rounded is None else (start, rounded.operands[0])


def describe_convolution(
    op: OpLike,
    padded: bool = False,
    decoded: bool = False,
    grouped: bool = False,
    planes: tuple[bool, bool] = (False, False),
) -> Kernel:
    """The kernel of a convolution of integer codes, NHWC by FHWC, over all channels; every size but the number of
    images is static.

    Args:
        padded: whether constant padding in front of it is part of it.
        decoded: whether it is of floats by a filter that is made of codes.
        grouped: whether it may have groups of channels, NHWGC by GFHWC.
        planes: whether a transposition of the image from NCHW is part of it, and one of the result to NCHW.

    Raises:
        Unfit: where it is none.
    """
    data, weight, init = op.operands
    value = op.results[0]
    groups = 1
    before: tuple[OpLike, ...] = (op,)
    if grouped and op.name == "linalg.conv_2d_nhwgc_gfhwc":
        groups = int(ir.RankedTensorType(weight.type).shape[0])
        data, value = _ungrouped_image(data), _ungrouped_result(value)
        before = (op, value.owner.operation)
    elif op.name != "linalg.conv_2d_nhwc_fhwc":
        raise Unfit("the layouts are not NHWC and FHWC", "a constant filter, which is brought to FHWC")
    if not is_zero_fill(init):
        raise Unfit("it adds to a tensor that is no fill of zero", "add the other tensor behind it")
    data, margin, padding = _without_padding(data) if padded else (data, (0, 0), 0)
    image, result = ([_size(v, d) for d in range(4)] for v in (data, value))
    n, h, w, c = image
    if h is None or w is None or c is None or any(size is None for size in result[1:]):
        raise Unfit("a size of the image is dynamic", "static sizes")
    *filters, height, width, depth = (int(x) for x in ir.RankedTensorType(weight.type).shape)
    count = prod(filters)
    rhs = Factor(weight, (*("n" for _ in filters), "k", "k", "k"))
    if decoded:
        rhs = _decoded(rhs, True)
    rows = tuple(_Axis(ROW, d, result[d]) for d in range(3))
    column = _Axis(COLUMN, 3, count)
    flipped = _flipped(data)
    chain = _Chain(value, (*rows, column), rows, column)
    chain.grow(gates=True)
    data = data if flipped is None else flipped
    source = _transposed_from(data, [0, 2, 3, 1]) if planes[0] else None
    last = _turned(chain) if planes[1] and chain.gate is None else None
    m = _product([a.size for a in rows])
    assert result[1] is not None
    assert result[2] is not None
    window = Window(
        (n, h, w, c), (result[1], result[2]), (height, width), _pair(op, "strides"), _pair(op, "dilations"), margin,
        padding, groups, source is not None,
    )  # fmt: skip
    return Kernel(
        m=m,
        n=count,
        k=height * width * depth,
        lhs=Factor(data if source is None else source, ("m", "k"), flipped=flipped is not None, window=window),
        rhs=rhs,
        acc_type=value.type.element_type,
        result_type=chain.value.type.element_type,
        stages=tuple(chain.stages),
        row_sizes=tuple(a.size for a in chain.rows),
        gate=chain.gate,
        planes=last is not None,
        operations=(*before, *chain.operations, *([] if last is None else [last])),
    )


def _transposed_from(value: ir.Value, permutation: list[int]) -> ir.Value | None:
    """What a `linalg.transpose` makes `value` of, None where it is none."""
    if producer_name(value) != "linalg.transpose":
        return None
    op = value.owner.operation
    return op.operands[0] if list(op.attributes["permutation"]) == permutation else None


def _turned(chain: _Chain) -> OpLike | None:
    """The op that brings the channels of a convolution's result, which nothing else reads, to the front."""
    owners = [use.owner.operation for use in chain.value.uses]
    if len(owners) != 1 or len(chain.rows) != 3 or not owners[0].results:
        return None
    source = _transposed_from(owners[0].results[0], [0, 3, 1, 2])
    return owners[0] if source is not None and source == chain.value else None


def _ungrouped_image(data: ir.Value) -> ir.Value:
    """The image `[N, H, W, C]` of which `[N, H, W, G, C / G]` is a view."""
    if producer_name(data) == "tensor.expand_shape":
        view = data.owner.operation
        if [len(list(group)) for group in view.attributes["reassociation"]] == [1, 1, 1, 2]:
            made: ir.Value = view.operands[0]
            return made
    raise Unfit("the groups of channels are no view of an image", "an image [N, H, W, C]")


def _ungrouped_result(value: ir.Value) -> ir.Value:
    """The view `[N, H, W, F]` by which alone `[N, H, W, G, F / G]` is read."""
    readers = [use.owner.operation for use in value.uses]
    view = readers[0] if len(readers) == 1 and readers[0].name == "tensor.collapse_shape" else None
    if view is not None and [len(list(group)) for group in view.attributes["reassociation"]] == [1, 1, 1, 2]:
        return view.results[0]
    raise Unfit("the results of groups of channels are read apart", "a result [N, H, W, F]")


def describe_depthwise(op: OpLike) -> Kernel:
    """The kernel of a depthwise convolution of integer codes, NHWC by HWC, each channel with a filter of its own: its
    columns are the channels, its weight `[K, N]` is `[H * W, C]`. Every size is static. Constant padding in front of it
    is part of it.

    Raises:
        Unfit: where it is none.
    """
    data, weight, init = op.operands
    value = op.results[0]
    if op.name != "linalg.depthwise_conv_2d_nhwc_hwc":
        raise Unfit("the layouts are not NHWC and HWC, or a channel has several filters", "one filter a channel")
    if not is_zero_fill(init):
        raise Unfit("it adds to a tensor that is no fill of zero", "add the other tensor behind it")
    data, margin, padding = _without_padding(data)
    flipped = _flipped(data)
    data = data if flipped is None else flipped
    image, result = ([_size(v, d) for d in range(4)] for v in (data, value))
    n, h, w, c = image
    if n is None or h is None or w is None or c is None or any(size is None for size in result):
        raise Unfit("a size of the image is dynamic", "static sizes")
    height, width, _ = (int(x) for x in ir.RankedTensorType(weight.type).shape)
    rows = tuple(_Axis(ROW, d, result[d]) for d in range(3))
    column = _Axis(COLUMN, 3, c)
    chain = _Chain(value, (*rows, column), rows, column)
    chain.grow(gates=False)
    m = _product([a.size for a in rows])
    assert result[1] is not None
    assert result[2] is not None
    window = Window(
        (n, h, w, c), (result[1], result[2]), (height, width), _pair(op, "strides"), _pair(op, "dilations"), margin,
        padding,
    )  # fmt: skip
    return Kernel(
        m=m,
        n=c,
        k=height * width,
        lhs=Factor(data, ("m", "k"), flipped=flipped is not None, window=window),
        rhs=Factor(weight, ("k", "k", "n")),
        acc_type=value.type.element_type,
        result_type=chain.value.type.element_type,
        stages=tuple(chain.stages),
        row_sizes=tuple(a.size for a in chain.rows),
        operations=(op, *chain.operations),
    )


def _without_padding(data: ir.Value) -> tuple[ir.Value, tuple[int, int], int]:
    """An image `[N, H, W, C]` in front of its padding, the rows and columns that are put before it, and the code that
    they hold; the image as it is where its padding has another form or a code that is not known."""
    if producer_name(data) != "tensor.pad":
        return data, (0, 0), 0
    op = data.owner.operation
    low, high = (list(op.attributes[f"static_{side}"]) for side in ("low", "high"))
    block = op.regions[0].blocks[0]
    number = list(block.operations)[-1].operation.operands[0]
    code = 0 if _is_positive_zero(number) else constant_scalar(number)
    dynamic = ir.ShapedType.get_dynamic_size()
    if code is None or dynamic in (*low, *high) or any(low[d] or high[d] for d in (0, 3)):
        return data, (0, 0), 0
    return op.operands[0], (low[1], low[2]), code


def _is_positive_zero(value: ir.Value) -> bool:
    """Whether it is the float all of whose bits are zero."""
    attribute = scalar_constant(value)
    return isinstance(attribute, ir.FloatAttr) and str(attribute.value) == "0.0"


def _pair(op: OpLike, name: str) -> tuple[int, int]:
    """`strides` or `dilations` of a named convolution; absent means one."""
    if name not in op.attributes:
        return 1, 1
    height, width = (int(v) for v in ir.DenseIntElementsAttr(op.attributes[name]))
    return height, width


def _product(sizes: Sequence[int | None]) -> int | None:
    total = 1
    for size in sizes:
        if size is None:
            return None
        total *= size
    return total


def _positions(affine_map: ir.AffineMap) -> list[int] | None:
    found = []
    for result in affine_map.results:
        if not isinstance(result, ir.AffineDimExpr):
            return None
        found.append(result.position)
    return found


def _axes_of(affine_map: ir.AffineMap, axes: Sequence[_Axis]) -> _Axes | None:
    positions = _positions(affine_map)
    return None if positions is None else tuple(axes[p] for p in positions)


def _loops_of_contraction(op: OpLike) -> _Axes:
    """What each loop is: rows, columns, depth, or groups (which all three tensors have)."""
    maps = [_positions(m) for m in indexing_maps(op)]
    if any(m is None for m in maps):
        raise Unfit("an operand is not read by whole axes", "a product of plain matrices")
    lhs, rhs, out = (m for m in maps if m is not None)
    letters = {(1, 0, 1): ROW, (0, 1, 1): COLUMN, (1, 1, 0): "k", (1, 1, 1): GROUP}
    sizes: dict[int, int | None] = {}
    for positions, value in zip((lhs, rhs, out), op.operands, strict=True):
        for axis, position in enumerate(positions):
            sizes[position] = sizes.get(position) or _size(value, axis)
    count = indexing_maps(op)[0].n_dims
    axes = []
    for d in range(count):
        letter = letters.get((int(d in lhs), int(d in rhs), int(d in out)))
        if letter is None:
            raise Unfit("a loop belongs to one operand alone", "a product of plain matrices")
        axes.append(_Axis(letter, d, sizes[d]))
    return tuple(axes)


def _size(value: ir.Value, axis: int) -> int | None:
    kind = ir.RankedTensorType(value.type)
    return None if kind.is_dynamic_dim(axis) else int(kind.get_dim_size(axis))


def _factor(op: OpLike, position: int, axes: _Axes, order: tuple[str, ...]) -> Factor:
    """One side; its axes are rows (or columns), groups, depth in this order, or for a weight depth first."""
    value = op.operands[position]
    letters = tuple(a.letter for a in axes)
    merged = [x for i, x in enumerate(letters) if i == 0 or letters[i - 1] != x]
    allowed = [[x for x in order if x in merged]]
    if position == 1:
        allowed.append([*(x for x in allowed[0] if x != COLUMN), COLUMN])
    if merged not in allowed:
        side = "activation" if position == 0 else "weight"
        raise Unfit(f"the axes of the {side} are {', '.join(letters)}", f"{' or '.join(', '.join(a) for a in allowed)}")
    name = _MAGNITUDES[position]
    flipped = _flipped(value)
    return Factor(
        value=value if flipped is None else flipped,
        source_axes=letters,
        magnitude=int(op.attributes[name].value) if name in op.attributes else 128,
        flipped=flipped is not None,
    )


def _one_byte(value: ir.Value) -> bool:
    """Whether a tensor is of floats of one byte: both sides of a product then are codes."""
    element = ir.RankedTensorType(value.type).element_type
    return isinstance(element, ir.FloatType) and bool(element.width == 8)


def _narrow(value: ir.Value) -> ir.Value:
    """The tensor of a shorter float type that an elementwise op widens to `value`, else `value`."""
    op = made_by(value, "linalg.generic")
    if op is None:
        return value
    maps = indexing_maps(op)
    names = [o.operation.name for o in op.regions[0].blocks[0].operations]
    if names != ["arith.extf", "linalg.yield"] or any(m != maps[0] for m in maps):
        return value
    return op.operands[0]


def _both_of_e2m1(lhs: Factor, rhs: Factor) -> tuple[Factor, Factor] | None:
    """Both sides as codes of e2m1, None where one of them is made in another way."""
    left, right = _of_e2m1(lhs), _of_e2m1(rhs)
    return None if left is None or right is None else (left, right)


def _of_e2m1(factor: Factor) -> Factor | None:
    """The side as codes of e2m1, None where it is made in another way."""
    value, letters = factor.value, factor.source_axes
    if producer_name(value) == "tensor.expand_shape":
        groups = [len(list(group)) for group in value.owner.operation.attributes["reassociation"]]
        if letters[-2:] != (GROUP, "k") or groups != [1] * (len(letters) - 2) + [2]:
            return None
        value, letters = value.owner.operation.operands[0], (*letters[:-2], "k")
    if producer_name(value) != "linalg.generic" or len(value.owner.operation.operands) != 2:
        return None
    op = value.owner.operation
    if any(m != ir.AffineMap.get_identity(m.n_dims) for m in indexing_maps(op)) or not decodes_e2m1(op):
        return None
    return replace(factor, value=op.operands[0], source_axes=letters, magnitude=12, e2m1=True)


def _decoded(factor: Factor, tables: bool) -> Factor:
    """A float weight as the codes that it is made of: one elementwise op, with K split into groups or not."""
    value, letters = factor.value, list(factor.source_axes)
    owner = producer(value)
    if owner is not None and owner.name == "tensor.collapse_shape":
        groups = [len(list(group)) for group in owner.attributes["reassociation"]]
        k = letters.index("k")
        if any(size != (2 if i == k else 1) for i, size in enumerate(groups)):
            raise Unfit("the weight is a view of something else than groups along K", "a weight [N, G, K / G]")
        letters = [x for letter in letters for x in (("g", "k") if letter == "k" else (letter,))]
        value = owner.operands[0]
        owner = producer(value)
    if owner is None or owner.name != "linalg.generic" or len(owner.results) != 1:
        raise Unfit("the weight is not made of codes here", "a quantised weight")
    maps = indexing_maps(owner)
    block = owner.regions[0].blocks[0]
    if _positions(maps[-1]) != list(range(maps[-1].n_dims)):
        raise Unfit("what dequantises the weight transposes it", "a weight [N, K]")
    codes = None
    sources: list[Source] = []
    for operand, map_ in zip(list(owner.operands)[:-1], maps, strict=False):
        positions = _positions(map_)
        axes = () if positions is None else tuple(letters[p] for p in positions)
        if codes is None and axes == tuple(letters) and str(operand.type.element_type) == "i8":
            codes = operand
            sources.append(Previous(0))
        elif (splat := _splat(operand)) is not None:
            sources.append(Literal(splat))
        elif positions is None or "k" in axes:
            raise Unfit("what dequantises the weight reads another tensor by K", "scales of columns or groups")
        else:
            sources.append(Operand(operand, axes))
    if codes is None:
        raise Unfit("the weight has no codes of 8 bits or less", "a quantised weight")
    for argument, source in zip(block.arguments, sources, strict=False):
        if isinstance(source, Operand) and not computable(argument.type):
            raise Unfit(f"what dequantises the weight reads {argument.type}", "scales of 16 or 32 bits")
    decode = Stage(block, tuple(sources))
    if (reason := unclonable(block)) and not (tables and scaled(decode)):
        raise Unfit(f"what dequantises the weight has no form on vectors: {reason}")
    return replace(factor, value=codes, source_axes=tuple(letters), decode=decode)


def _group_of(rhs: Factor) -> int | None:
    """Codes of a group of a decoded weight."""
    return _size(rhs.value, rhs.source_axes.index("k")) if "g" in rhs.source_axes else None


def _flipped(value: ir.Value) -> ir.Value | None:
    """The tensor behind an elementwise `x ^ 0x80`, which is how unsigned codes become signed ones."""
    op = made_by(value, "linalg.generic")
    if op is None:
        return None
    maps = indexing_maps(op)
    if len(op.operands) != 2 or any(m != ir.AffineMap.get_identity(m.n_dims) for m in maps):
        return None
    first, *rest = [o.operation for o in op.regions[0].blocks[0].operations]
    if first.name != "arith.xori" or len(rest) != 1 or rest[0].operands[0] != first.results[0]:
        return None
    argument, mask = first.operands
    constant = made_by(mask, "arith.constant")
    if argument != op.regions[0].blocks[0].arguments[0] or constant is None:
        return None
    if constant.attributes["value"].value != -128:
        return None
    return op.operands[0]


class _Chain:
    """Grows a group from its contraction: each step takes the one op that reads the last value."""

    def __init__(
        self, value: ir.Value, axes: _Axes, rows: _Axes, column: _Axis, batch: _Axes = (), small_floats: bool = False
    ) -> None:
        self.small_floats = small_floats
        # The last value: one tensor, or the two halves of its columns.
        self.parts, self.axes = [value], axes
        self.rows, self.column, self.batch = rows, column, batch
        self.gate: Gate | None = None
        self.operations: list[OpLike] = []
        self.stages: list[Stage] = []
        self.total: Stage | None = None
        self.total_type: ir.Type | None = None

    @property
    def value(self) -> ir.Value:
        return self.parts[0]

    def combine(self, groups: Sequence[_Axis]) -> None:
        """Take in the sum over groups, which must be there: otherwise the parts are a batch of products."""
        user = self._user()
        if user is None:
            raise Unfit("parts of K that nothing adds up", "a sum over the groups behind the product")
        loops = self._loops(user)
        out = None if loops is None else _axes_of(indexing_maps(user)[-1], loops)
        if out != (*self.batch, *self.rows, self.column) or loops is None or len(groups) != 1:
            raise Unfit("parts of K that nothing adds up", "a sum over the groups behind the product")
        if reason := unclonable(user.regions[0].blocks[0], self.small_floats):
            raise Unfit(f"the sum over groups has no form on vectors: {reason}")
        if not is_zero_fill(user.operands[len(user.operands) - 1]):
            raise Unfit("the sum over groups does not start from zero", "add the other tensor behind the sum")
        sources = self._sources(user, loops)
        if isinstance(sources, str):
            raise Unfit(f"the sum over groups {sources}")
        self.total = Stage(user.regions[0].blocks[0], sources)
        self.total_type = user.results[0].type.element_type
        self._take(user)

    def grow(self, gates: bool) -> None:
        while self._split_rows():
            pass
        while self._stage():
            pass
        if not gates or not self._split_columns():
            return
        if not self._stage():
            self._join_columns()
            return
        while self._stage():
            pass

    def _stage(self) -> bool:
        """Take in the next elementwise op; whether there was one that fits."""
        user = self._user()
        if user is None:
            return False
        loops = self._loops(user)
        block = user.regions[0].blocks[0]
        if loops is None or _axes_of(indexing_maps(user)[-1], loops) != (*self.batch, *self.rows, self.column):
            return False
        if unclonable(block, self.small_floats) or list(block.arguments[len(block.arguments) - 1].uses):
            return False
        sources = self._sources(user, loops)
        if isinstance(sources, str):
            return False
        self.stages.append(Stage(block, sources))
        self._take(user)
        while self._split_rows():
            pass
        return True

    def _split_columns(self) -> bool:
        """Whether the value is read as two halves of its columns: a gate and what it lets through."""
        slices = [use.owner.operation for use in self.value.uses]
        size = self.column.size
        if len(slices) != 2 or size is None or size % 2 or any(s.name != "tensor.extract_slice" for s in slices):
            return False
        slices.sort(key=lambda s: list(s.attributes["static_offsets"])[-1])
        for i, s in enumerate(slices):
            offsets, strides = (list(s.attributes[f"static_{name}"]) for name in ("offsets", "strides"))
            sizes = [_size(s.results[0], d) for d in range(len(offsets))]
            whole = [_size(self.value, d) for d in range(len(offsets) - 1)]
            if offsets != [0] * len(whole) + [i * size // 2] or set(strides) != {1} or sizes != [*whole, size // 2]:
                return False
        self.gate = Gate(len(self.stages), 1 + len(self.operations), self.value.type.element_type)
        self._joined = self.value, self.column
        self.operations += slices
        self.parts = [s.results[0] for s in slices]
        self.column = replace(self.column, size=size // 2)
        self.axes = (*self.batch, *self.rows, self.column)
        return True

    def _join_columns(self) -> None:
        """Leave the halves to whoever reads them."""
        value, self.column = self._joined
        self.parts, self.gate = [value], None
        del self.operations[-2:]
        self.axes = (*self.batch, *self.rows, self.column)

    def _split_rows(self) -> bool:
        """Look through a view that makes several axes of the rows, as of an image; whether there was one."""
        owners = [use.owner.operation for use in self.value.uses]
        if self.batch or len(owners) != 1 or owners[0].name != "tensor.expand_shape":
            return False
        view = owners[0]
        groups = [[int(i.value) for i in group] for group in view.attributes["reassociation"]]
        if len(groups[-1]) != 1:
            return False
        first = 1 + max(a.number for a in (*self.rows, self.column))
        self.rows = tuple(_Axis(ROW, first + i, _size(view.results[0], i)) for group in groups[:-1] for i in group)
        self._take(view)
        return True

    def _take(self, user: OpLike) -> None:
        self.operations.append(user)
        self.parts = [user.results[0]]
        self.axes = (*self.batch, *self.rows, self.column)

    def _user(self) -> OpLike | None:
        """The one generic with one result that reads the last value, None when another op does too."""
        owners = [use.owner.operation for part in self.parts for use in part.uses]
        if not owners or any(o != owners[0] for o in owners) or owners[0].name != "linalg.generic":
            return None
        return owners[0] if len(owners[0].results) == 1 else None

    def _loops(self, user: OpLike) -> _Axes | None:
        """What the loops of `user` are, known from how it reads the last value."""
        inputs = list(user.operands)[:-1]
        if self.value not in inputs:
            return None
        positions = _positions(indexing_maps(user)[inputs.index(self.value)])
        if positions is None or sorted(positions) != list(range(indexing_maps(user)[0].n_dims)):
            return None
        loops: list[Any] = [None] * len(positions)
        for axis, position in zip(self.axes, positions, strict=True):
            loops[position] = axis
        return tuple(loops)

    def _sources(self, user: OpLike, loops: _Axes) -> tuple[Source, ...] | str:
        """What the block arguments are, or why one cannot be read."""
        found: list[Source] = []
        for value, map_ in zip(list(user.operands)[:-1], indexing_maps(user), strict=False):
            axes = _axes_of(map_, loops)
            if axes is None:
                return "reads an operand by something else than whole axes"
            if value in self.parts:
                if axes != self.axes:
                    return "reads the product transposed"
                found.append(Previous(len(self.stages), self.parts.index(value)))
                continue
            if (splat := _splat(value)) is not None:
                found.append(Literal(splat))
                continue
            rows = [a for a in axes if a.letter == ROW]
            wanted = [a for a in self.rows if a in rows or a.size != 1]
            at = [i for i, a in enumerate(axes) if a.letter == ROW]
            if rows and (rows != wanted or at != list(range(at[0], at[0] + len(at)))):
                return "reads some axes of a batch's rows"
            found.append(Operand(value, tuple(a.letter for a in axes)))
        return tuple(found)


def _splat(value: ir.Value) -> ir.Attribute | None:
    """The attribute of a constant tensor with one value."""
    constant = made_by(value, "arith.constant")
    attribute = None if constant is None else constant.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return attribute.get_splat_value()
    return None
