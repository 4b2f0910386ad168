"""qmlir-channels-last: convolutions of floats with their channels last, and all that is between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ...core.mlir import arith, ir, linalg, tensor
from ...dialect.constants import is_zero_fill
from ...ir.affine import axis_loops, in_order, indexing_maps
from ...ir.build import dims, empty, filled, tensor_type
from ...ir.walk import StaticPadding, collect, made_by, operations_of, static_padding
from ...kernels.at_load import decided_at_load
from ...targets import backend_of, resolve
from ...targets.tensors import generic, generic_like, type_of
from ..base import Pass, State

if TYPE_CHECKING:
    from ...core.mlir import OpLike

_T = TypeVar("_T")
FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]  # where the axes of images come from: to NCHW, to NHWC
_DEPTHWISE = "linalg.depthwise_conv_2d_nchw_chw"
_MOST = 256 << 20  # bytes of the patches of bfloat16


@dataclass(frozen=True)
class ChannelsLastPass(Pass):
    """The kernels of CPUs for convolutions of f32 and bfloat16 by a constant filter read images whose channels lie side
    by side, and IREE's code for a convolution of each channel by itself has vectors only so. What elementwise ops,
    padding, pooling, slices, concatenations and sums over pixels read of their results they read so too, and give it
    on: transposes are left where a network takes images in and gives them out.

    Of bfloat16 `qmlir-select` makes the patches. Where these would take more than 256 MiB, of each image where their
    number is dynamic, the convolution stays.
    """

    name: ClassVar[str] = "qmlir-channels-last"
    summary: ClassVar[str] = "convolutions of floats, and what is between them, with their channels last (CPU)"
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
    """Each op gives its images on with their channels last, as far as there is a rule for it."""
    for op in operations_of(block):
        rule = _convolution if _is_convolution(op, elements) else _RULES.get(op.name)
        if rule is None:
            continue
        with op.location, ir.InsertionPoint(op):
            made = rule(op)
            if made is None:
                continue
            op.results[0].replace_all_uses_with(made)
        op.erase()
    for unread in reversed(collect(block.owner, "linalg.transpose", "tensor.pad")):
        if not list(unread.results[0].uses):
            unread.erase()


def _is_convolution(op: OpLike, elements: Sequence[str]) -> bool:
    return _is_depthwise(op) or _is_over_channels(op, elements)


def _static_images(op: OpLike) -> bool:
    """Whether only the number of images is dynamic."""
    data, weight, init = (type_of(value) for value in op.operands)
    return weight.has_static_shape and not any(t.is_dynamic_dim(d) for t in (data, init) for d in range(1, 4))


def _is_depthwise(op: OpLike) -> bool:
    if op.name != _DEPTHWISE or not _static_images(op):
        return False
    data, _, init = (type_of(value).element_type for value in op.operands)
    return isinstance(init, ir.FloatType) and data == init


def _is_over_channels(op: OpLike, elements: Sequence[str]) -> bool:
    """Whether it is one that a kernel takes."""
    if op.name != "linalg.conv_2d_nchw_fchw" or not _static_images(op):
        return False
    data, weight, init = (type_of(value) for value in op.operands)
    kind = str(data.element_type)
    if kind not in elements or weight.element_type != data.element_type or str(init.element_type) != "f32":
        return False
    images = 1 if init.is_dynamic_dim(0) else init.get_dim_size(0)
    patches = 2 * prod(list(weight.shape)[1:]) * prod(list(init.shape)[2:]) * images
    return decided_at_load(op.operands[1]) if kind == "f32" else patches <= _MOST


# ------------------------------------------------------------------------------------------------------- images


def _turned(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """The tensor whose axis `i` is `value`'s axis `order[i]`."""
    sizes = dims(value)
    made: ir.Value = linalg.transpose(
        value, outs=[empty([sizes[d] for d in order], value.type.element_type)], permutation=order
    ).results[0]
    return made


def _first(value: ir.Value) -> ir.Value:
    """An image `[N, H, W, C]` as `[N, C, H, W]`."""
    return _turned(value, FIRST)


def _last(value: ir.Value) -> ir.Value:
    """An image `[N, C, H, W]` as `[N, H, W, C]`: what it was made of, if it has been that."""
    source = _turned_from(value)
    if source is not None:
        return source
    padding = static_padding(value)
    return _turned(value, LAST) if padding is None else _padded(_last(padding.source), padding)


def _turned_from(value: ir.Value) -> ir.Value | None:
    """The image `[N, H, W, C]` that `value` is with its channels first; None where it was made otherwise."""
    op = made_by(value, "linalg.transpose")
    return op.operands[0] if op is not None and list(op.attributes["permutation"]) == FIRST else None


def _moved(values: Sequence[_T]) -> list[_T]:
    """What belongs to the axes of `[N, C, H, W]`, as it belongs to those of `[N, H, W, C]`."""
    return [values[i] for i in LAST]


def _padded(image: ir.Value, padding: StaticPadding) -> ir.Value:
    """An image with its channels last, with what pads it where they are first."""
    low, high = _moved(padding.low), _moved(padding.high)
    sizes = [
        size if isinstance(size, ir.Value) else size + before + behind
        for size, before, behind in zip(dims(image), low, high, strict=True)
    ]
    op = tensor.PadOp(tensor_type(sizes, image.type.element_type), image, [], [], low, high)
    with ir.InsertionPoint(op.regions[0].blocks.append(*[ir.IndexType.get()] * 4)):
        tensor.YieldOp(padding.fill)
    return op.result


# ------------------------------------------------------------------------------------------------------- rules


def _convolution(op: OpLike) -> ir.Value:
    data, weight, init = op.operands
    image, start = _last(data), filled(_moved(dims(init)), arith.constant(init.type.element_type, 0.0))
    if op.name == _DEPTHWISE:
        made = linalg.depthwise_conv_2d_nhwc_hwc(image, _turned(weight, [1, 2, 0]), outs=[start], **_windows(op))
    else:
        made = linalg.conv_2d_nhwc_fhwc(image, _turned(weight, LAST), outs=[start], **_windows(op))
    return _first(_added(made, init))


def _windows(op: OpLike) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in ("strides", "dilations") if name in op.attributes}


def _added(image: ir.Value, init: ir.Value) -> ir.Value:
    """An image and what a convolution starts from, which has its channels first."""
    if is_zero_fill(init):
        return image
    same = ir.AffineMap.get_identity(4)
    bias = made_by(init, "linalg.broadcast")
    other, read = None, same
    if bias is not None and list(bias.attributes["dimensions"]) == [0, 2, 3]:
        other, read = bias.operands[0], ir.AffineMap.get(4, 0, [ir.AffineDimExpr.get(3)])
    result = empty(dims(image), image.type.element_type)
    other = _last(init) if other is None else other
    return generic([image, other], result, [same, read, same], ["parallel"] * 4, lambda x, y, _: arith.addf(x, y))


def _pooling(op: OpLike) -> ir.Value | None:
    data, window, init = op.operands
    start, image = made_by(init, "linalg.fill"), _turned_from(data)
    if start is None or image is None:
        return None
    pool = {"linalg.pooling_nchw_max": linalg.pooling_nhwc_max, "linalg.pooling_nchw_sum": linalg.pooling_nhwc_sum}
    made: ir.Value = pool[op.name](image, window, outs=[filled(_moved(dims(init)), start.operands[0])], **_windows(op))
    return _first(made)


def _padding(op: OpLike) -> ir.Value | None:
    padding = static_padding(op.results[0])
    image = _turned_from(op.operands[0])
    return None if padding is None or image is None else _first(_padded(image, padding))


def _concatenation(op: OpLike) -> ir.Value | None:
    images = [image for value in op.operands if (image := _turned_from(value)) is not None]
    if len(images) < len(op.operands):
        return None
    axis = LAST.index(int(op.attributes["dim"].value))
    return _first(tensor.ConcatOp(_moved_type(op.results[0].type), axis, images).result)


def _slice(op: OpLike) -> ir.Value | None:
    data, *dynamic = op.operands
    image, kind = _turned_from(data), type_of(op.results[0])
    # Of what may be dynamic only the number of images keeps its place.
    if image is None or kind.rank != 4 or len(dynamic) != int(kind.is_dynamic_dim(0)):
        return None
    offsets, sizes, strides = (_moved(list(op.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides"))
    return _first(tensor.ExtractSliceOp(_moved_type(kind), image, [], dynamic, [], offsets, sizes, strides).result)


def _moved_type(kind: ir.Type) -> ir.Type:
    """Of an image with its channels last, by the type of one that has them first."""
    return ir.RankedTensorType.get(_moved(list(ir.RankedTensorType(kind).shape)), kind.element_type)


def _transposition(op: OpLike) -> ir.Value | None:
    """Channels that a model itself brings to the end are there."""
    return _turned_from(op.operands[0]) if list(op.attributes["permutation"]) == LAST else None


def _generic(op: OpLike) -> ir.Value | None:
    """Reads images with their channels last, and where it makes an image makes it so."""
    *inputs, init = op.operands
    images = [_turned_from(value) for value in inputs]
    maps = indexing_maps(op)
    read = next((m for m, image in zip(maps, images, strict=False) if image is not None and _is_whole(m)), None)
    if read is None or len(op.results) > 1 or collect(op, "linalg.index"):
        return None
    # The loop of the channels inside of those of pixels.
    _, channels, _, width = axis_loops(read)
    order = [i for i in range(read.n_dims) if i != channels]
    order.insert(order.index(width) + 1, channels)
    makes_image = maps[-1] == read
    values = [value if image is None else image for value, image in zip(inputs, images, strict=True)]
    moved = [*(image is not None for image in images), makes_image]
    new_maps = [_of_moved(in_order(m, order), last) for m, last in zip(maps, moved, strict=True)]
    kinds = [str(a) for a in op.attributes["iterator_types"]]
    made = generic_like(
        op, [*values, _init(init) if makes_image else init], new_maps,
        ["reduction" if "reduction" in kinds[i] else "parallel" for i in order],
    )  # fmt: skip
    for name in [str(n) for n in op.attributes]:
        if name not in made.owner.attributes:
            made.owner.attributes[name] = op.attributes[name]
    return _first(made) if makes_image else made


def _is_whole(m: ir.AffineMap) -> bool:
    """Whether an image is read by a loop for each axis."""
    return len(set(map(str, m.results))) == 4 and all(isinstance(e, ir.AffineDimExpr) for e in m.results)


def _of_moved(m: ir.AffineMap, moved: bool) -> ir.AffineMap:
    return ir.AffineMap.get(m.n_dims, 0, _moved(list(m.results))) if moved else m


def _init(value: ir.Value) -> ir.Value:
    """What an image with its channels last starts from."""
    if made_by(value, "tensor.empty") is not None:
        return empty(_moved(dims(value)), value.type.element_type)
    start = made_by(value, "linalg.fill")
    return _last(value) if start is None else filled(_moved(dims(value)), start.operands[0])


_RULES: dict[str, Callable[[OpLike], ir.Value | None]] = {
    "linalg.pooling_nchw_max": _pooling, "linalg.pooling_nchw_sum": _pooling, "tensor.pad": _padding,
    "tensor.concat": _concatenation, "tensor.extract_slice": _slice, "linalg.transpose": _transposition,
    "linalg.generic": _generic,
}  # fmt: skip
