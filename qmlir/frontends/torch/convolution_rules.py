"""Decompositions of convolutions that torch-mlir does not convert, and of `im2col` and `col2im`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .graph import aten
from .rules import TorchResult, TorchRule, rule

if TYPE_CHECKING:
    from torch._ops import OpOverload


def axes_with_a_batch(target: OpOverload, operands: Sequence[int]) -> int:
    """The rank of the first operand if it has a batch axis; `operands`: the ranks of the tensor operands, of which a
    convolution's weight has the same rank as a batched input."""
    window = next((a.N for a in target._schema.arguments if a.name == "kernel_size"), None)
    return operands[1] if window is None else window + 2


def with_a_batch(target: OpOverload) -> TorchRule:
    """A convolution or pool of one unbatched image, computed on a batch of one: torch-mlir's conversion of such
    convolutions crashes the process, and it has none for such max pools."""

    def rule(x: torch.Tensor, *args: object, **kwargs: object) -> TorchResult:
        if x.dim() == axes_with_a_batch(target, [t.dim() for t in (x, *args) if isinstance(t, torch.Tensor)]):
            return NotImplemented
        found = target(x.unsqueeze(0), *args, **kwargs)
        return found.squeeze(0) if isinstance(found, torch.Tensor) else [f.squeeze(0) for f in found]

    return rule


WITH_A_BATCH = frozenset((
    aten.convolution.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.conv1d.padding,
    aten.conv2d.padding, aten.conv3d.padding, aten.conv_transpose1d.default, aten.conv_transpose2d.input,
    aten.conv_transpose3d.input, aten.max_pool2d.default, aten.max_pool3d.default,
    aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default, aten.avg_pool1d.default,
    aten.avg_pool2d.default, aten.avg_pool3d.default,
))  # fmt: skip


@rule(aten.convolution.default)
def convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> torch.Tensor:  # fmt: skip
    """Apply the rule for transposed or for depthwise 3-D convolutions."""
    if transposed:
        return spread_transposed(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return frames_by_channels(x, weight, bias, stride, padding, dilation, groups)


@rule(aten.conv3d.default)
def frames_by_channels(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), groups: int = 1,
) -> torch.Tensor:  # fmt: skip
    """A depthwise 3-D convolution, `x` [N, C, D, H, W]: one 2-D convolution of the frames for each position in the
    window along D, and the sum of these."""
    if x.dim() != 5 or weight.shape[1] != 1 or groups == 1:
        return NotImplemented
    stride, padding, dilation = (list(v) * 3 if len(v) == 1 else list(v) for v in (stride, padding, dilation))
    deep, step, total = weight.shape[2], stride[0], None
    x = aten.constant_pad_nd.default(x, [0, 0, 0, 0, padding[0], padding[0]], 0.0) if padding[0] else x
    count = (x.shape[2] - dilation[0] * (deep - 1) - 1) // step + 1
    for k in range(deep):
        first = k * dilation[0]
        frames = aten.slice.Tensor(x, 2, first, first + (count - 1) * step + 1, step).transpose(1, 2)
        one = frames.reshape(-1, *frames.shape[2:])
        one = aten.conv2d.default(one, weight[:, :, k], None, stride[1:], padding[1:], dilation[1:], groups)
        total = one if total is None else total + one
    assert total is not None
    total = total.reshape(-1, count, *total.shape[1:]).transpose(1, 2)
    return total if bias is None else total + bias.reshape(-1, 1, 1, 1)


def spread_transposed(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> torch.Tensor:  # fmt: skip
    """A grouped or 3-D transposed convolution: insert zeros between the elements of the input, and convolve it with the
    reversed filters."""
    space = x.dim() - 2
    if not transposed or (groups == 1 and space < 3):
        return NotImplemented
    sizes = list(x.shape[2:])
    if not all(isinstance(s, int) for s in sizes):
        return NotImplemented
    stride, padding, dilation, output_padding = (
        list(v) * space if len(v) == 1 else list(v) for v in (stride, padding, dilation, output_padding)
    )
    for i in range(space):
        x = _spread(x, 2 + i, stride[i])
    reach = [dilation[i] * (weight.shape[2 + i] - 1) - padding[i] for i in range(space)]
    pads = [p for i in reversed(range(space)) for p in (reach[i], reach[i] + output_padding[i])]
    x = aten.constant_pad_nd.default(x, pads, 0.0)
    each, out, window = weight.shape[0] // groups, weight.shape[1], weight.shape[2:]
    filters = weight.flip(list(range(2, 2 + space))).reshape(groups, each, out, *window).transpose(1, 2)
    filters = filters.reshape(groups * out, each, *window)
    return aten.convolution.default(x, filters, bias, [1] * space, [0] * space, dilation, False, [0] * space, groups)


@rule(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def conv_transpose(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,), output_padding: Sequence[int] = (0,), groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> torch.Tensor:  # fmt: skip
    """A grouped or 3-D transposed convolution; see `spread_transposed`."""
    return spread_transposed(x, weight, bias, stride, padding, dilation, True, output_padding, groups)


@rule(aten.im2col.default)
def windows(
    x: torch.Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    """The windows of an image as columns `[N, C kh kw, windows]`: one slice of the image per position in the window."""
    x = aten.constant_pad_nd.default(x, [padding[1], padding[1], padding[0], padding[0]], 0.0)
    batch, channels, *sizes = x.shape
    count = [(s - d * (k - 1) - 1) // t + 1 for s, k, d, t in zip(sizes, kernel, dilation, stride, strict=True)]
    parts = [
        x[:, :, i * dilation[0] : i * dilation[0] + (count[0] - 1) * stride[0] + 1 : stride[0],
          j * dilation[1] : j * dilation[1] + (count[1] - 1) * stride[1] + 1 : stride[1]]
        for i in range(kernel[0]) for j in range(kernel[1])
    ]  # fmt: skip
    return torch.stack(parts, 2).reshape(batch, channels * kernel[0] * kernel[1], count[0] * count[1])


@rule(aten.col2im.default)
def image_of_windows(
    x: torch.Tensor, sizes: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:  # fmt: skip
    """The image that is the sum of overlapping windows `[N, C kh kw, windows]`: for each position in the window, its
    elements with zeros inserted between them, padded to their offset in the image."""
    if not all(isinstance(s, int) for s in sizes) or x.dim() != 3:
        return NotImplemented
    full = [s + 2 * p for s, p in zip(sizes, padding, strict=True)]
    count = [(s - d * (k - 1) - 1) // t + 1 for s, k, d, t in zip(full, kernel, dilation, stride, strict=True)]
    parts = x.unflatten(1, (-1, kernel[0], kernel[1])).unflatten(-1, count)
    total = None
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part, pads = parts[:, :, i, j], list[int]()
            for axis, at in ((3, j * dilation[1]), (2, i * dilation[0])):
                part = _spread(part, axis, stride[axis - 2])
                pads += [at, full[axis - 2] - at - part.shape[axis]]
            part = aten.constant_pad_nd.default(part, pads, 0.0)
            total = part if total is None else total + part
    assert total is not None
    return total[:, :, padding[0] : padding[0] + sizes[0], padding[1] : padding[1] + sizes[1]]


def _spread(x: torch.Tensor, axis: int, stride: int) -> torch.Tensor:
    """Insert `stride - 1` zeros between the elements of a static axis."""
    if stride == 1:
        return x
    size = x.shape[axis]
    x = aten.constant_pad_nd.default(x.unsqueeze(axis + 1), [0, 0] * (x.dim() - 1 - axis) + [0, stride - 1], 0.0)
    return x.flatten(axis, axis + 1).narrow(axis, 0, (size - 1) * stride + 1)
