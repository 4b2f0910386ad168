"""qmlir-channels-last: convert float convolutions, and the ops between them, to channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ...core.mlir import arith, ir, linalg, tensor
from ...dialect.constants import is_zero_fill
from ...ir.affine import axis_loops, in_order, indexing_maps
from ...ir.attributes import loop_kinds, reassociation, window_steps
from ...ir.build import Extent, dims, empty, expand, filled, tensor_type, transpose
from ...ir.walk import collect, defining_op, made_by, operations_of, static_padding
from ...kernels.axes import dims_of
from ...kernels.codes import numbers_known
from ...kernels.computes import multiply_add
from ...targets import backend_of, resolve
from ...targets.tensors import generic, generic_like, type_of
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike

_T = TypeVar("_T")
_DEPTHWISE = "linalg.depthwise_conv_2d_nchw_chw"
_CONVOLUTIONS = ("linalg.conv_1d_ncw_fcw", "linalg.conv_2d_nchw_fchw")
_GROUPED = "linalg.conv_2d_ngchw_gfchw"
_SPLIT_GROUPS = [[0], [1, 2], [3], [4]]  # reassociation of an image whose channel axis is split into groups
_MOST_BYTES = 256 << 20  # largest size in bytes of the patches of a bf16 convolution


@dataclass(frozen=True)
class ChannelsLastPass(Pass):
    """The CPU kernels for f32 and bf16 convolutions by a constant filter read images whose channels are contiguous, and
    IREE vectorises depthwise convolutions only in that layout. So this pass converts these convolutions to channels
    last. Elementwise ops, padding, pooling, slices, concatenations and sums over pixels that read their results are
    converted as well. Transposes remain where a network takes images in and where it returns them.

    `qmlir-select` later builds the patches of bf16 convolutions. A convolution whose patches would take more than
    256 MiB (per image if the number of images is dynamic) stays.
    """

    name: ClassVar[str] = "qmlir-channels-last"
    summary: ClassVar[str] = "convert float convolutions, and the ops between them, to channels last (CPU)"
    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        target = resolve(self.target)
        backend = backend_of(target)
        if not backend.on_host:
            return
        elements = backend.convolved_floats(target)
        convolutions = collect(module, where=lambda op: _is_convolution(op, elements))
        for block in dict.fromkeys(op.block for op in convolutions):
            _rewrite(block, elements)


def _rewrite(block: ir.Block, elements: Sequence[str]) -> None:
    """Convert each op for which there is a rule, so that it forwards its images with their channels last."""
    for op in operations_of(block):
        whole = op.name != _GROUPED and _is_convolution(op, elements)
        rule = _convolution if whole else _RULES.get(op.name)
        if rule is None:
            continue
        with op.location, ir.InsertionPoint(op):
            made = rule(op)
            if made is None:
                continue
            op.results[0].replace_all_uses_with(made)
        op.erase()
    # Erase unused ops: an unused `tensor.dim` would be another use of a value that a kernel could fuse.
    for unread in reversed(collect(block.owner, _GROUPED, "linalg.transpose", *_WITHOUT_EFFECT)):
        if not list(unread.results[0].uses):
            unread.erase()


def _is_convolution(op: OpLike, elements: Sequence[str]) -> bool:
    return _is_depthwise(op) or _is_over_channels(op, elements)


def _static_images(op: OpLike) -> bool:
    """Whether only the number of images is dynamic."""
    data, weight, init = (type_of(value) for value in op.operands)
    return weight.has_static_shape and not any(t.is_dynamic_dim(d) for t in (data, init) for d in range(1, t.rank))


def _is_depthwise(op: OpLike) -> bool:
    if op.name != _DEPTHWISE or not _static_images(op):
        return False
    data, _, init = (type_of(value).element_type for value in op.operands)
    return isinstance(init, ir.FloatType) and data == init


def _is_over_channels(op: OpLike, elements: Sequence[str]) -> bool:
    """Whether `op` is a convolution over all channels, or all of a group, that a kernel accepts."""
    if op.name not in (*_CONVOLUTIONS, _GROUPED) or not _static_images(op):
        return False
    data, weight, init = (type_of(value) for value in op.operands)
    kind = str(data.element_type)
    if kind not in elements or weight.element_type != data.element_type or str(init.element_type) != "f32":
        return False
    images = 1 if init.is_dynamic_dim(0) else init.get_dim_size(0)
    patches = 2 * prod(list(weight.shape)[1:]) * prod(list(init.shape)[2:]) * images
    return numbers_known(op.operands[1]) if kind == "f32" else patches <= _MOST_BYTES


# ------------------------------------------------------------------------------------------------------- images


def _first_order(rank: int) -> list[int]:
    """The permutation that transposes `[N, .., C]` to `[N, C, ..]`."""
    return [0, rank - 1, *range(1, rank - 1)]


def _first(value: ir.Value) -> ir.Value:
    """Transpose an image `[N, .., C]` to `[N, C, ..]`."""
    return transpose(value, _first_order(type_of(value).rank))


def _last(value: ir.Value) -> ir.Value:
    """An image `[N, C, ..]` as `[N, .., C]`. A transpose from that layout is undone; padding and fills are rebuilt."""
    source, padding = _source_with_channels_last(value), static_padding(value)
    if source is not None:
        return source
    if padding is not None:
        return _padded(_last(padding.source), _moved(padding.low), _moved(padding.high), padding.fill)
    if made_by(value, "tensor.empty") is not None:
        return empty(_moved(dims(value)), value.type.element_type)
    fill = made_by(value, "linalg.fill")
    if fill is not None:
        return filled(_moved(dims(value)), fill.operands[0])
    return transpose(value, _moved(range(type_of(value).rank)))


def _source_with_channels_last(value: ir.Value) -> ir.Value | None:
    """The image `[N, .., C]` whose transpose to `[N, C, ..]` is `value`; None if another op makes `value`."""
    op = made_by(value, "linalg.transpose")
    turned = op is not None and list(op.attributes["permutation"]) == _first_order(type_of(value).rank)
    return op.operands[0] if op is not None and turned and type_of(value).rank > 2 else None


def _moved(values: Sequence[_T]) -> list[_T]:
    """Reorder one value per axis of `[N, C, ..]` to the order of the axes of `[N, .., C]`."""
    return [values[0], *values[2:], values[1]]


def _padded(image: ir.Value, low: Sequence[int], high: Sequence[int], fill: ir.Value) -> ir.Value:
    kind = type_of(image)
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [
        dynamic if kind.is_dynamic_dim(d) else kind.get_dim_size(d) + before + behind
        for d, (before, behind) in enumerate(zip(low, high, strict=True))
    ]
    op = tensor.PadOp(ir.RankedTensorType.get(sizes, kind.element_type), image, [], [], low, high)
    with ir.InsertionPoint(op.regions[0].blocks.append(*[ir.IndexType.get()] * len(sizes))):
        tensor.YieldOp(fill)
    return op.result


def _as_lines(image: ir.Value, images: Extent) -> ir.Value:
    """`[N, W, C]` as `[N, 1, W, C]`; a padding that makes the image is rebuilt with the new axis."""
    padding = static_padding(image)
    if padding is not None:
        low, high = ([side[0], 0, *side[1:]] for side in (padding.low, padding.high))
        return _padded(_as_lines(padding.source, images), low, high, padding.fill)
    _, width, channels = type_of(image).shape
    return expand(image, [[images], [1, width], [channels]])


def _joined(image: ir.Value) -> ir.Value:
    """`[N, H, W, C]` as `[N, H * W, C]`."""
    images, height, width, channels = type_of(image).shape
    kind = ir.RankedTensorType.get([images, height * width, channels], image.type.element_type)
    made: ir.Value = tensor.collapse_shape(kind, image, [[0], [1, 2], [3]])
    return made


# ------------------------------------------------------------------------------------------------------- rules


def _convolution(op: OpLike) -> ir.Value:
    """A convolution with channels last. One along a single axis becomes a convolution of images with one line."""
    data, weight, init = op.operands
    image, zero = _last(data), arith.constant(init.type.element_type, 0.0)
    # Take sizes from the init, not from the result: a kernel may fuse the result only if it has a single use.
    images, filters, *pixels = dims(init)
    windows = _windows(op, len(pixels))
    lines = len(pixels) == 1
    sizes = [images, *([1] if lines else []), *pixels, filters]
    if op.name == _DEPTHWISE:
        filter_ = transpose(weight, [1, 2, 0])
        made = linalg.depthwise_conv_2d_nhwc_hwc(image, filter_, outs=[filled(sizes, zero)], **windows)
        return _first(_added(made, init, sizes))
    if lines:
        image = _as_lines(image, images)
        weight = expand(weight, [[filters], [dims(weight)[1]], [1, dims(weight)[2]]])
        windows = {name: (1, *steps) for name, steps in windows.items()}
    filter_ = transpose(weight, _moved(range(4)))
    made = _added(linalg.conv_2d_nhwc_fhwc(image, filter_, outs=[filled(sizes, zero)], **windows), init, sizes)
    return _first(_joined(made) if lines else made)


def _grouped_convolution(op: OpLike) -> ir.Value | None:
    """A grouped convolution by known f32 filters, whose image is an expanded view; None for any other."""
    data, weight, init = op.operands
    view, begins = made_by(data, "tensor.expand_shape"), made_by(init, "tensor.expand_shape")
    known = str(type_of(weight).element_type) == "f32" and _static_images(op) and numbers_known(weight)
    if not known or view is None or reassociation(view) != _SPLIT_GROUPS or not (begins or is_zero_fill(init)):
        return None
    images, (_, groups, filters, height, width) = dims(init)[0], type_of(init).shape
    image = _last(view.operands[0])
    _, *pixels, channels = type_of(image).shape
    parts = expand(image, [[images], *([size] for size in pixels), [groups, channels // type_of(weight).shape[0]]])
    zero = filled([images, height, width, groups, filters], arith.constant(init.type.element_type, 0.0))
    made = linalg.conv_2d_nhwgc_gfhwc(parts, transpose(weight, [0, 1, 3, 4, 2]), outs=[zero], **_windows(op, 2))
    sizes = [images, height, width, groups * filters]
    whole = tensor.collapse_shape(tensor_type(sizes, init.type.element_type), made, [[0], [1], [2], [3, 4]])
    return _first(whole if begins is None else _added(whole, begins.operands[0], sizes))


def _windows(op: OpLike, axes: int) -> dict[str, tuple[int, ...]]:
    return {name: window_steps(op, name, axes) for name in ("strides", "dilations")}


def _added(image: ir.Value, init: ir.Value, sizes: Sequence[Extent]) -> ir.Value:
    """The sum of an image of `sizes` `[N, H, W, C]` and the init of a convolution, which has its channels first."""
    if is_zero_fill(init):
        return image
    same = read = ir.AffineMap.get_identity(4)
    bias = made_by(init, "linalg.broadcast")
    if bias is not None and list(bias.attributes["dimensions"]) == [0, *range(2, type_of(init).rank)]:
        other, read = bias.operands[0], ir.AffineMap.get(4, 0, [ir.AffineDimExpr.get(3)])
    else:
        other = _last(init) if type_of(init).rank == 4 else _as_lines(_last(init), sizes[0])
    result = empty(sizes, image.type.element_type)
    return generic([image, other], result, [same, read, same], ["parallel"] * 4, lambda x, y, _: arith.addf(x, y))


def _pooling(op: OpLike) -> ir.Value | None:
    data, window, init = op.operands
    image = _source_with_channels_last(data)
    if image is None:
        return None
    windows = _windows(op, type_of(window).rank)
    made: ir.Value = getattr(linalg, _POOLINGS[op.name])(image, window, outs=[_last(init)], **windows)
    return _first(made)


def _padding(op: OpLike) -> ir.Value | None:
    padding = static_padding(op.results[0])
    image = _source_with_channels_last(op.operands[0])
    if padding is None or image is None:
        return None
    return _first(_padded(image, _moved(padding.low), _moved(padding.high), padding.fill))


def _concatenation(op: OpLike) -> ir.Value | None:
    images = [image for value in op.operands if (image := _source_with_channels_last(value)) is not None]
    if len(images) < len(op.operands):
        return None
    axis = _moved(range(type_of(op.results[0]).rank)).index(int(op.attributes["dim"].value))
    return _first(tensor.ConcatOp(_moved_type(op.results[0].type), axis, images).result)


def _slice(op: OpLike) -> ir.Value | None:
    data, *dynamic = op.operands
    image, kind = _source_with_channels_last(data), type_of(op.results[0])
    # Only the number of images may be dynamic, because only axis 0 keeps its place among the dynamic operands.
    if image is None or kind.rank != type_of(data).rank or len(dynamic) != int(kind.is_dynamic_dim(0)):
        return None
    offsets, sizes, strides = (_moved(list(op.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides"))
    return _first(tensor.ExtractSliceOp(_moved_type(kind), image, [], dynamic, [], offsets, sizes, strides).result)


def _moved_type(kind: ir.Type) -> ir.Type:
    """The type of an image with its channels last, from its type with channels first."""
    return ir.RankedTensorType.get(_moved(list(ir.RankedTensorType(kind).shape)), kind.element_type)


def _transposition(op: OpLike) -> ir.Value | None:
    """A transpose of the model itself to channels last folds away."""
    order = list(op.attributes["permutation"])
    return _source_with_channels_last(op.operands[0]) if order == _moved(range(len(order))) else None


def _collapse(op: OpLike) -> ir.Value | None:
    """A collapse of the pixels into one axis, or of the groups in the result of a grouped convolution."""
    made = made_by(op.operands[0], _GROUPED)
    if made is not None and reassociation(op) == _SPLIT_GROUPS:
        return _grouped_convolution(made)
    image = _source_with_channels_last(op.operands[0])
    if image is None or reassociation(op) != [[0], [1], [2, 3]]:
        return None
    return _first(_joined(image))


def _expansion(op: OpLike) -> ir.Value | None:
    """An expansion of the pixels `[N, C, H * W]` to `[N, C, H, W]`."""
    image, kind = _source_with_channels_last(op.operands[0]), type_of(op.results[0])
    if image is None or reassociation(op) != [[0], [1], [2, 3]] or any(kind.is_dynamic_dim(d) for d in (1, 2, 3)):
        return None
    sizes = list(kind.shape)
    images = list(op.operands)[1] if kind.is_dynamic_dim(0) else sizes[0]
    return _first(expand(image, [[images], sizes[2:], [sizes[1]]]))


def _generic(op: OpLike) -> ir.Value | None:
    """Read images with their channels last; a result that is an image gets its channels last too. Products stay,
    because kernels recognise them by the order of their axes."""
    *inputs, init = op.operands
    images = [_source_with_channels_last(value) for value in inputs]
    maps = indexing_maps(op)
    read = next((m for m, image in zip(maps, images, strict=False) if image is not None and _is_whole(m)), None)
    if read is None or len(op.results) > 1 or collect(op, "linalg.index") or multiply_add(op) is not None:
        return None
    # The loop of the channels moves to the inside of the pixel loops.
    _, channels, *pixels = axis_loops(read)
    order = [i for i in range(read.n_dims) if i != channels]
    order.insert(order.index(pixels[-1]) + 1, channels)
    makes_image = maps[-1] == read
    moved = [*(image is not None or m == read for m, image in zip(maps, images, strict=False)), makes_image]
    values = [_last(value) if last else value for value, last in zip(inputs, moved, strict=False)]
    new_maps = [_moved_map(in_order(m, order), last) for m, last in zip(maps, moved, strict=True)]
    kinds = loop_kinds(op)
    made = generic_like(op, [*values, _last(init) if makes_image else init], new_maps, [kinds[i] for i in order])
    for name in [str(n) for n in op.attributes]:
        if name not in defining_op(made).attributes:
            defining_op(made).attributes[name] = op.attributes[name]
    return _first(made) if makes_image else made


def _is_whole(m: ir.AffineMap) -> bool:
    """Whether each axis of an image follows a loop of its own."""
    return dims_of(m) is not None


def _moved_map(m: ir.AffineMap, moved: bool) -> ir.AffineMap:
    return ir.AffineMap.get(m.n_dims, 0, _moved(list(m.results))) if moved else m


_POOLINGS = {
    "linalg.pooling_ncw_max": "pooling_nwc_max", "linalg.pooling_ncw_sum": "pooling_nwc_sum",
    "linalg.pooling_nchw_max": "pooling_nhwc_max", "linalg.pooling_nchw_sum": "pooling_nhwc_sum",
}  # fmt: skip
_WITHOUT_EFFECT = ("tensor.pad", "tensor.expand_shape", "tensor.empty", "tensor.dim")
_RULES: dict[str, Callable[[OpLike], ir.Value | None]] = {
    **dict.fromkeys(_POOLINGS, _pooling), "tensor.pad": _padding, "tensor.concat": _concatenation,
    "tensor.extract_slice": _slice, "tensor.collapse_shape": _collapse, "tensor.expand_shape": _expansion,
    "linalg.transpose": _transposition, "linalg.generic": _generic,
}  # fmt: skip
