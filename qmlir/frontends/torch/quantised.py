"""Read quantised values in FX graphs: a common form of torch's many quantise and dequantise operators.

`dequantised(graph, node)` and `quantised(graph, node)` read nodes of torch's `quantized_decomposed` or torchao's
operators. They return scales in the shape that the dialect's operations take: for each axis of the codes, the number of
blocks along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.fx import Node

from ...dialect.dtypes import DTYPES
from ..raising import PatternDeclined
from .dtypes import FLOATS, FROM_TORCH, SMALL_FLOATS, TO_TORCH, code_name
from .graph import VIEWS, TorchGraph, argument, aten, dtype_of, is_tensor, retyped, same, same_shape, shape_of
from .simplify import name_of

NodeOrTensor: TypeAlias = "Node | torch.Tensor"  # a tensor is constant
Reader: TypeAlias = "Callable[[TorchGraph, Node], Dequantised | Quantised | None]"


@dataclass(frozen=True)
class Dequantised:
    """`(codes - zero_point) * scale`, a float node.

    `dtype` is that of the codes (`i4` for 4-bit codes stored one per byte); `scale` is None for unscaled codes."""

    node: Node
    codes: Node
    dtype: str
    scale: NodeOrTensor | None
    zero_point: NodeOrTensor | None


@dataclass(frozen=True)
class Quantised:
    """`clamp(round(source / scale) + zero_point, lo, hi)`, a node of codes. If the scale is a Python number, torch
    multiplies by the f32 `multiplier` instead of dividing."""

    node: Node
    source: Node
    dtype: str
    scale: NodeOrTensor
    zero_point: NodeOrTensor | None
    lo: int
    hi: int
    multiplier: float | None = None


_READERS: dict[str, Reader] = {}


def _reads(*names: str) -> Callable[[Reader], Reader]:
    def decorate(function: Reader) -> Reader:
        _READERS.update(dict.fromkeys(names, function))
        return function

    return decorate


def dequantised(graph: TorchGraph, node: torch.fx.Node) -> Dequantised | None:
    """The dequantisation that a node computes; None for any other node.

    Raises PatternDeclined for one that the dialect cannot express."""
    found = _read(graph, node)
    return found if isinstance(found, Dequantised) else None


def quantised(graph: TorchGraph, node: torch.fx.Node) -> Quantised | None:
    """The quantisation that a node computes; None for any other node. Raises PatternDeclined as `dequantised` does."""
    found = _read(graph, node)
    return found if isinstance(found, Quantised) else None


def _read(graph: TorchGraph, node: torch.fx.Node) -> Dequantised | Quantised | None:
    if not (isinstance(node, Node) and node.op == "call_function" and is_tensor(node)):
        return None
    reader = _READERS.get(name_of(node))
    return reader(graph, node) if reader is not None else None


# --------------------------------------------------------------------------------- torch's quantized_decomposed

_Q = "quantized_decomposed::"


def _range(node: Node, dtype_argument: str = "dtype") -> tuple[torch.dtype, int, int]:
    """Storage type and bounds of the codes."""
    dtype = argument(node, dtype_argument)
    stored = DTYPES[FROM_TORCH[dtype]] if dtype in FROM_TORCH else None
    if stored is None or (stored.name not in ("i8", "u8") and dtype not in SMALL_FLOATS):
        raise PatternDeclined(f"the codes are {dtype}; the dialect's are of 8 bits or fewer")
    lo, hi = argument(node, "quant_min"), argument(node, "quant_max")
    if isinstance(lo, Node) or isinstance(hi, Node):
        raise PatternDeclined("the range of the codes is not a constant")
    return dtype, stored.lo if lo is None else int(lo), stored.hi if hi is None else int(hi)


def _scalar(value: torch.fx.Node | float, dtype: torch.dtype) -> torch.Tensor | torch.fx.Node:
    """A per-tensor scale or zero point: a node, or a constant scalar."""
    return value if isinstance(value, Node) else torch.tensor(value, dtype=dtype)


def _zero(graph: TorchGraph, zero: NodeOrTensor | None, shape: Sequence[int] | None = None) -> NodeOrTensor | None:
    """A zero point as i32 in the shape of its scale; None if it is known to be 0."""
    if zero is None:
        return None
    known = graph.constant(zero)
    if known is None:
        return zero
    if known.is_floating_point() and not bool((known == known.round()).all()):
        raise PatternDeclined("the zero points are not integers")
    if not bool(known.any()):
        return None
    known = known.to(torch.int32)
    return known if shape is None else known.reshape([int(s) for s in shape])


def _scale(graph: TorchGraph, scale: NodeOrTensor, shape: Sequence[int] | None = None) -> NodeOrTensor:
    """A scale, as f32 if it is constant."""
    known = graph.constant(scale)
    if known is None:
        return scale
    known = known.float()
    return known if shape is None else known.reshape([int(s) for s in shape])


def _float_out(node: Node) -> None:
    if dtype_of(node) not in FLOATS[:3]:
        raise PatternDeclined(f"the result is {dtype_of(node)}; use float32, float16 or bfloat16")


@_reads(*(f"{_Q}dequantize_per_tensor{o}" for o in ("", ".tensor")))
def _dequantize_per_tensor(graph: TorchGraph, node: Node) -> Dequantised:
    dtype, lo, hi = _range(node)
    _float_out(node)
    codes, scale, zero = node.args[:3]
    return Dequantised(node, codes, code_name(dtype, lo, hi), _scale(graph, _scalar(scale, torch.float32)),
                       _zero(graph, _scalar(zero, torch.int32)))  # fmt: skip


@_reads(*(f"{_Q}quantize_per_tensor{o}" for o in ("", ".tensor")))
def _quantize_per_tensor(graph: TorchGraph, node: Node) -> Quantised:
    dtype, lo, hi = _range(node)
    source, scale, zero = node.args[:3]
    multiplier = None if isinstance(scale, Node) else float(torch.tensor(1.0 / float(scale), dtype=torch.float32))
    return Quantised(node, source, FROM_TORCH[dtype], _scale(graph, _scalar(scale, torch.float32)),
                     _zero(graph, _scalar(zero, torch.int32)), lo, hi, multiplier)  # fmt: skip


def _along(node: Node, axis: int) -> list[int]:
    shape = shape_of(node.args[0])
    return [s if i == axis % len(shape) else 1 for i, s in enumerate(shape)]


@_reads(f"{_Q}dequantize_per_channel")
def _dequantize_per_channel(graph: TorchGraph, node: Node) -> Dequantised:
    dtype, lo, hi = _range(node)
    _float_out(node)
    shape = _along(node, argument(node, "axis"))
    return Dequantised(node, node.args[0], code_name(dtype, lo, hi), _shaped(graph, node, node.args[1], shape),
                       _zero_shaped(graph, node, node.args[2], shape))  # fmt: skip


@_reads(f"{_Q}quantize_per_channel")
def _quantize_per_channel(graph: TorchGraph, node: Node) -> Quantised:
    dtype, lo, hi = _range(node)
    shape = _along(node, argument(node, "axis"))
    return Quantised(node, node.args[0], FROM_TORCH[dtype], _shaped(graph, node, node.args[1], shape),
                     _zero_shaped(graph, node, node.args[2], shape), lo, hi)  # fmt: skip


def _grouped(node: Node) -> list[torch.SymInt | int]:
    shape = shape_of(node.args[0])
    return [*shape[:-1], shape[-1] // argument(node, "group_size")]


@_reads(f"{_Q}dequantize_per_channel_group")
def _dequantize_per_channel_group(graph: TorchGraph, node: Node) -> Dequantised:
    dtype, lo, hi = _range(node)
    _float_out(node)
    shape = _grouped(node)
    return Dequantised(node, node.args[0], code_name(dtype, lo, hi), _shaped(graph, node, node.args[1], shape),
                       _zero_shaped(graph, node, node.args[2], shape))  # fmt: skip


@_reads(f"{_Q}dequantize_per_token")
def _dequantize_per_token(graph: TorchGraph, node: Node) -> Dequantised:
    dtype, lo, hi = _range(node)
    _float_out(node)
    shape = [*shape_of(node.args[0])[:-1], 1]
    return Dequantised(node, node.args[0], code_name(dtype, lo, hi), _shaped(graph, node, node.args[1], shape),
                       _zero_shaped(graph, node, node.args[2], shape))  # fmt: skip


@_reads(f"{_Q}quantize_per_token")
def _quantize_per_token(graph: TorchGraph, node: Node) -> Quantised:
    dtype, lo, hi = _range(node)
    shape = [*shape_of(node.args[0])[:-1], 1]
    return Quantised(node, node.args[0], FROM_TORCH[dtype], _shaped(graph, node, node.args[1], shape),
                     _zero_shaped(graph, node, node.args[2], shape), lo, hi)  # fmt: skip


# ------------------------------------------------------------------------------------------------- torchao's

_A = "torchao::"


def block_counts(shape: Sequence[torch.SymInt | int], block: Sequence[int]) -> list[torch.SymInt | int]:
    """Blocks along each axis: the shape of the scale."""
    if len(shape) != len(block):
        raise PatternDeclined(f"blocks of {list(block)} do not cover a tensor of {len(shape)} axes")
    return [1 if same(s, b) or b == -1 else s if b == 1 else s // b for s, b in zip(shape, block, strict=True)]


@_reads(f"{_A}dequantize_affine")
def _dequantize_affine(graph: TorchGraph, node: Node) -> Dequantised:
    dtype, lo, hi = _range(node, "input_dtype")
    _float_out(node)
    shape = block_counts(shape_of(node.args[0]), [_size(b) for b in argument(node, "block_size")])
    return Dequantised(node, node.args[0], code_name(dtype, lo, hi),
                       _shaped(graph, node, argument(node, "scale"), shape),
                       _zero_shaped(graph, node, argument(node, "zero_point"), shape))  # fmt: skip


@_reads(f"{_A}quantize_affine")
def _quantize_affine(graph: TorchGraph, node: Node) -> Quantised:
    dtype, lo, hi = _range(node, "output_dtype")
    shape = block_counts(shape_of(node.args[0]), [_size(b) for b in argument(node, "block_size")])
    return Quantised(node, node.args[0], FROM_TORCH[dtype], _shaped(graph, node, argument(node, "scale"), shape),
                     _zero_shaped(graph, node, argument(node, "zero_point"), shape), lo, hi)  # fmt: skip


@_reads(f"{_A}dequantize_affine_float8_non_decomposed")
def _dequantize_affine_float8(graph: TorchGraph, node: Node) -> Dequantised:
    codes: Node = node.args[0]
    _float_out(node)
    return Dequantised(node, codes, FROM_TORCH[dtype_of(codes)], _scale(graph, node.args[1]), None)


def _size(value: int) -> int:
    return value.meta["val"] if isinstance(value, Node) else value


def _shaped(graph: TorchGraph, before: Node, scale: torch.fx.Node, shape: Sequence[torch.SymInt | int]) -> NodeOrTensor:
    """A scale in `shape`: a constant, or a view of a node."""
    if graph.constant(scale) is not None:
        return _scale(graph, scale, shape)
    return reshaped(graph, before, scale, shape)


def _zero_shaped(
    graph: TorchGraph, before: Node, zero: torch.fx.Node, shape: Sequence[torch.SymInt | int]
) -> NodeOrTensor | None:
    if zero is None or graph.constant(zero) is not None:
        return _zero(graph, zero, shape)
    return reshaped(graph, before, zero, shape)


def reshaped(graph: TorchGraph, before: Node, node: Node, shape: Sequence[torch.SymInt | int]) -> Node:
    """A view of `node` in `shape`, or an earlier value that has it. If not only axes of size 1 differ, at most one size
    may be a symbol."""
    source = node
    while True:
        if same_shape(shape_of(source), shape):
            return source
        if source.op != "call_function" or source.target not in VIEWS:
            break
        source = source.args[0]
    own = shape_of(node)
    # If only axes of size 1 differ, squeeze and unsqueeze these: that needs no arithmetic on symbols.
    kept = [s for s in shape if not same(s, 1)]
    if same_shape([s for s in own if not same(s, 1)], kept):
        found = node
        for axis in reversed([i for i, s in enumerate(own) if same(s, 1)]):
            size = shape_of(found)
            found = graph.call(before, aten.squeeze.dim, (found, axis), {},
                               retyped(found.meta["val"], dtype_of(found), size[:axis] + size[axis + 1 :]))  # fmt: skip
        for axis in [i for i, s in enumerate(shape) if same(s, 1)]:
            size = (*shape_of(found)[:axis], 1, *shape_of(found)[axis:])
            found = graph.call(before, aten.unsqueeze.default, (found, axis), {},
                               retyped(found.meta["val"], dtype_of(found), size))  # fmt: skip
        return found
    known = [-1 if not isinstance(s, int) else s for s in shape]
    if known.count(-1) > 1:
        raise PatternDeclined(f"a scale of shape {list(own)} is used as {list(shape)}")
    return graph.call(before, aten.view.default, (node, known), {}, retyped(node.meta["val"], dtype_of(node), shape))


# ------------------------------------------------------------------------ codes widened by arithmetic (torchao)


@_reads("aten::_to_copy", "aten::to.dtype")
def _widened(graph: TorchGraph, node: Node) -> Dequantised | None:
    """Unscaled codes as floats: a weight-only product multiplies by the scale later."""
    codes: Node = node.args[0]
    if not is_tensor(codes) or dtype_of(node) not in FLOATS[:3] or graph.constant(codes) is None:
        return None
    if dtype_of(codes) not in (torch.int8, torch.uint8, *SMALL_FLOATS):
        return None
    return Dequantised(node, codes, FROM_TORCH[dtype_of(codes)], None, None)


@_reads("aten::mul.Tensor")
def _scaled(graph: TorchGraph, node: Node) -> Dequantised | None:
    """Constant codes times a constant scale."""
    codes, scale = node.args
    if graph.constant(codes) is not None and not isinstance(codes, Node):
        return None
    bare = _read(graph, codes)
    known = graph.constant(scale)
    if not isinstance(bare, Dequantised) or bare.scale is not None or known is None:
        return None
    shape = shape_of(bare.codes)
    if not same_shape(shape, shape_of(node)) or known.dim() > len(shape):
        return None
    known = known.to(torch.float32).reshape([1] * (len(shape) - known.dim()) + list(known.shape))
    return Dequantised(node, bare.codes, bare.dtype, known, None)


__all__ = [
    "TO_TORCH",
    "Dequantised",
    "NodeOrTensor",
    "Quantised",
    "block_counts",
    "dequantised",
    "quantised",
    "reshaped",
]
