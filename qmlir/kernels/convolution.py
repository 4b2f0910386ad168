"""From a convolution to the description of its kernel: its window, the padding of its image, and the elementwise ops
that read only its result."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ..core.mlir import ir
from ..dialect.constants import is_zero_fill
from ..ir.attributes import reassociation, window_pair
from ..ir.walk import defining_op, producer_name, static_padding
from .axes import Axis, product_of, size_of
from .bodies import scalar_constant
from .chain import Chain
from .computes import signed_from
from .description import BATCH, COLUMN, ROW, Batch, Factor, Kernel, Unfit, Window
from .factors import decoded_weight, plain_weight
from .scaled import constant_scalar

if TYPE_CHECKING:
    from ..core.mlir import OpLike

_GROUPED = [[0], [1], [2], [3, 4]]  # axes of an image whose channels are groups


def describe_convolution(
    op: OpLike,
    padded: bool = False,
    decoded: bool = False,
    grouped: bool = False,
    planes: tuple[bool, bool] = (False, False),
    plain: bool = False,
) -> Kernel:
    """The kernel of a convolution of integer codes, NHWC by FHWC, over all channels; all sizes except the number of
    images are static.

    Args:
        padded: whether to fuse constant padding of the image.
        decoded: whether the image is floats and the filter is decoded from codes.
        grouped: whether groups of channels, NHWGC by GFHWC, are allowed.
        planes: whether to fuse a transpose of the image from NCHW, and one of the result to NCHW.
        plain: whether image and filter are floats.

    Raises:
        Unfit: the op is not such a convolution.
    """
    data, weight, init = op.operands
    value = op.results[0]
    groups = 1
    before: tuple[OpLike, ...] = (op,)
    if grouped and op.name == "linalg.conv_2d_nhwgc_gfhwc":
        groups = int(ir.RankedTensorType(weight.type).shape[0])
        data, value = _ungrouped_image(data), _ungrouped_result(value)
        before = (op, defining_op(value))
    elif op.name != "linalg.conv_2d_nhwc_fhwc":
        raise Unfit("the layouts are not NHWC and FHWC", "a constant filter, which is brought to FHWC")
    if not is_zero_fill(init):
        raise Unfit("its initial value is not zero", "initialise it with zero and add the tensor to the result")
    data, margin, padding = _without_padding(data) if padded else (data, (0, 0), 0)
    image, result = ([size_of(v, d) for d in range(4)] for v in (data, value))
    n, h, w, c = image
    if h is None or w is None or c is None or any(size is None for size in result[1:]):
        raise Unfit("a size of the image is dynamic", "static sizes")
    *filters, height, width, depth = (int(x) for x in ir.RankedTensorType(weight.type).shape)
    count = prod(filters)
    rhs = Factor(weight, (*("n" for _ in filters), "k", "k", "k"))
    if decoded:
        rhs = decoded_weight(rhs, True)
    if plain:
        rhs = plain_weight(rhs)
    rows = tuple(Axis(ROW, d, result[d]) for d in range(3))
    column = Axis(COLUMN, 3, count)
    flipped = signed_from(data)
    chain = Chain(value, (*rows, column), rows, column)
    chain.grow(gates=True)
    data = data if flipped is None else flipped
    source = _transposed_from(data, [0, 2, 3, 1]) if planes[0] else None
    last = _channels_first(chain) if planes[1] and chain.gate is None else None
    m = product_of([a.size for a in rows])
    assert result[1] is not None
    assert result[2] is not None
    window = Window(
        (n, h, w, c), (result[1], result[2]), (height, width), window_pair(op, "strides"),
        window_pair(op, "dilations"), margin, padding, groups, source is not None,
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


def side_by_side(kernel: Kernel) -> Kernel:
    """A convolution with groups of channels as a batch with one product per group; other kernels unchanged."""
    window = kernel.lhs.window
    if window is None or window.groups == 1:
        return kernel
    batch = Batch(window.groups, window.groups, side_by_side=True)
    rhs = replace(kernel.rhs, source_axes=(BATCH, *kernel.rhs.source_axes[1:]))
    return replace(kernel, n=kernel.n // window.groups, rhs=rhs, batch=batch)


def describe_depthwise(op: OpLike) -> Kernel:
    """The kernel of a depthwise convolution of integer codes or floats, NHWC by HWC, with one filter per channel: its
    columns are the channels, its weight `[K, N]` is `[H * W, C]`. All sizes except the number of images are static.
    Constant padding of the image is fused.

    Raises:
        Unfit: the op is not such a convolution.
    """
    data, weight, init = op.operands
    value = op.results[0]
    if op.name != "linalg.depthwise_conv_2d_nhwc_hwc":
        raise Unfit("the layouts are not NHWC and HWC, or a channel has several filters", "one filter per channel")
    if not is_zero_fill(init):
        raise Unfit("its initial value is not zero", "initialise it with zero and add the tensor to the result")
    data, margin, padding = _without_padding(data)
    flipped = signed_from(data)
    data = data if flipped is None else flipped
    image, result = ([size_of(v, d) for d in range(4)] for v in (data, value))
    n, h, w, c = image
    if h is None or w is None or c is None or any(size is None for size in result[1:]):
        raise Unfit("a size of the image is dynamic", "static sizes")
    height, width, _ = (int(x) for x in ir.RankedTensorType(weight.type).shape)
    rows = tuple(Axis(ROW, d, result[d]) for d in range(3))
    column = Axis(COLUMN, 3, c)
    chain = Chain(value, (*rows, column), rows, column)
    chain.grow(gates=False)
    m = product_of([a.size for a in rows])
    assert result[1] is not None
    assert result[2] is not None
    window = Window(
        (n, h, w, c), (result[1], result[2]), (height, width), window_pair(op, "strides"),
        window_pair(op, "dilations"), margin, padding,
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


def _transposed_from(value: ir.Value, permutation: list[int]) -> ir.Value | None:
    """The operand of the `linalg.transpose` by `permutation` that makes `value`; None if there is no such op."""
    if producer_name(value) != "linalg.transpose":
        return None
    op = defining_op(value)
    return op.operands[0] if list(op.attributes["permutation"]) == permutation else None


def _channels_first(chain: Chain) -> OpLike | None:
    """The only reader of a convolution's result, if it transposes the result to NCHW; None otherwise."""
    owners = [use.owner.operation for use in chain.value.uses]
    if len(owners) != 1 or len(chain.rows) != 3 or not owners[0].results:
        return None
    source = _transposed_from(owners[0].results[0], [0, 3, 1, 2])
    return owners[0] if source is not None and source == chain.value else None


def _ungrouped_image(data: ir.Value) -> ir.Value:
    """The image `[N, H, W, C]` of which `[N, H, W, G, C / G]` is a view."""
    if producer_name(data) == "tensor.expand_shape":
        view = defining_op(data)
        if reassociation(view) == _GROUPED:
            made: ir.Value = view.operands[0]
            return made
    raise Unfit("the groups of channels are not a view of an image", "an image [N, H, W, C]")


def _ungrouped_result(value: ir.Value) -> ir.Value:
    """The view `[N, H, W, F]` that is the only reader of `[N, H, W, G, F / G]`."""
    readers = [use.owner.operation for use in value.uses]
    view = readers[0] if len(readers) == 1 and readers[0].name == "tensor.collapse_shape" else None
    if view is not None and reassociation(view) == _GROUPED:
        return view.results[0]
    raise Unfit("the results of the channel groups are not merged by one reshape", "a result [N, H, W, F]")


def _without_padding(data: ir.Value) -> tuple[ir.Value, tuple[int, int], int]:
    """The unpadded image `[N, H, W, C]`, the rows and columns of padding before it, and the padding's code; the image
    unchanged, with no padding, if its padding has another form or its code is not known."""
    padding = static_padding(data)
    if padding is None or any(padding.low[d] or padding.high[d] for d in (0, 3)):
        return data, (0, 0), 0
    code = 0 if _is_positive_zero(padding.fill) else constant_scalar(padding.fill)
    return (data, (0, 0), 0) if code is None else (padding.source, (padding.low[1], padding.low[2]), code)


def _is_positive_zero(value: ir.Value) -> bool:
    """Whether a value is the constant float +0.0, whose bits are all zero."""
    attribute = scalar_constant(value)
    return isinstance(attribute, ir.FloatAttr) and str(attribute.value) == "0.0"
