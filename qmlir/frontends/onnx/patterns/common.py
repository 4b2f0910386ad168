"""What the patterns share: scales, zero points and quantised values as the graph writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ....core.mlir import arith, tensor
from ....dialect.dtypes import DTYPES
from ....ir import build
from ....ir.checks import assert_equal
from ....spec import TensorSpec
from ...raising import PatternDeclined, Tensor
from ...tensors import at_axis, elementwise, integer, real, scalar_of
from ..node import Node
from ..types import ONNX

if TYPE_CHECKING:
    from ....core.mlir import ir

# The 8-bit codes that products take on either side.
BYTES = ("i8", "u8")


def scale_of(t: Tensor) -> Tensor:
    """A scale as f32: `[]` for one value, else as it is."""
    t = scalar_of(t) if all(s == 1 for s in t.shape) else t
    return real(t)


def zero_of(t: Tensor | None) -> Tensor | None:
    """A zero point as i32: None for a constant 0 and for types without one, `[]` for one value, else as it is."""
    if t is None or not DTYPES[t.dtype].is_int:
        if t is not None and t.array is not None and t.array.astype(np.float32).any():
            raise PatternDeclined(f"a zero point of type {t.dtype} that is not 0")
        return None
    t = scalar_of(t) if all(s == 1 for s in t.shape) else t
    if t.array is not None:
        return Tensor.constant(t.array.astype(np.int32)) if t.array.any() else None
    return elementwise(lambda x: integer(x, t.dtype), [t], "i32")


def ratio(over: Sequence[Tensor], under: Tensor) -> Tensor:
    """The product of f32 scales divided by another one, in f32 in that order, as onnxruntime forms its multipliers."""
    if under.array is not None and all(t.array is not None for t in over):
        value = np.asarray(np.float32(1.0))
        for t in over:
            assert t.array is not None
            value = np.asarray(value * t.array.astype(np.float32))
        with np.errstate(divide="ignore", invalid="ignore"):
            return Tensor.constant(np.asarray(value / under.array.astype(np.float32), np.float32))

    def body(*xs: ir.Value) -> ir.Value:
        value = xs[0]
        for x in xs[1:-1]:
            value = arith.mulf(value, x)
        return arith.divf(value, xs[-1])

    return elementwise(body, [*over, under], "f32")


def times(a: Tensor, b: Tensor) -> Tensor:
    """The product of two scales in f32."""
    if a.array is not None and b.array is not None:
        return Tensor.constant(np.asarray(a.array * b.array, np.float32))
    return elementwise(arith.mulf, [a, b], "f32")


def same(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two constants (or absent zero points) are equal."""
    if a is None or b is None:
        return a is b
    if a.array is None or b.array is None:
        return a is b
    return a.array.shape == b.array.shape and bool((a.array == b.array).all())


@dataclass(frozen=True)
class DequantizedValue:
    """A value that a DequantizeLinear makes: `(codes - zero) * scale`, the scale `[]`, `[C]` along `axis`, or of the
    codes' rank in blocks."""

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    axis: int
    block: int
    nodes: tuple[Node, ...]  # what a pattern that reads the codes takes in
    dtype: str = "f32"  # of the dequantised value

    @property
    def per_tensor(self) -> bool:
        return not self.scale.shape

    def aligned(self, t: Tensor | None) -> Tensor | None:
        """The scale or the zero point so that it broadcasts (in blocks) against the codes."""
        if t is None or not t.shape or self.block:
            return t
        return at_axis(t, self.axis, len(self.codes.shape))

    def described(self) -> str:
        kind = "per tensor" if self.per_tensor else f"in blocks of {self.block}" if self.block else "per axis"
        return f"{self.codes.dtype}, {kind}" + ("" if self.per_tensor else f" {self.axis}")


def quantised_input(op: Node, i: int) -> DequantizedValue | None:
    """The quantised value behind input `i` of a node: a DequantizeLinear, or the transpose of a constant one."""
    node = op.producer(i)
    if node is None:
        return None
    if node.op_type in ("DequantizeLinear", "com.microsoft.DequantizeLinear"):
        return of_dequantize(node)
    if node.op_type == "Identity":
        found = quantised_input(node, 0)
        return None if found is None else _with(found, node)
    if node.op_type == "Transpose":
        found = quantised_input(node, 0)
        if found is None or found.codes.array is None:
            return None
        order = node.attributes.get("perm") or list(range(len(found.codes.shape)))[::-1]
        codes = Tensor.constant(np.ascontiguousarray(found.codes.array.transpose(order)), found.codes.dtype)
        scale, zero, axis = found.scale, found.zero, found.axis
        if found.block:
            if scale.array is None or (zero is not None and zero.array is None):
                return None
            scale = Tensor.constant(np.ascontiguousarray(scale.array.transpose(order)))
            if zero is not None and zero.array is not None and zero.shape:
                zero = Tensor.constant(np.ascontiguousarray(zero.array.transpose(order)))
        if not found.per_tensor:
            axis = list(order).index(axis)
        return DequantizedValue(codes, scale, zero, axis, found.block, (*found.nodes, node), found.dtype)
    return None


def _with(q: DequantizedValue, node: Node) -> DequantizedValue:
    return DequantizedValue(q.codes, q.scale, q.zero, q.axis, q.block, (*q.nodes, node), q.dtype)


def of_dequantize(node: Node) -> DequantizedValue:
    """What a DequantizeLinear dequantises."""
    codes, raw = node.operand(0), node.operand(1)
    axis = axis_of(node, len(codes.shape))
    block = int(node.attributes.get("block_size", 0))
    scale, zero = scale_of(raw), zero_of(node.optional(2))
    if block:
        check_blocks(codes.shape, raw.shape, axis, block)
        scale = real(raw)
        z = node.optional(2)
        zero = None if zero is None or z is None else _same_shape(z)
    return DequantizedValue(codes, scale, zero, axis, block, (node,), raw.dtype)


def _same_shape(z: Tensor) -> Tensor:
    """A zero point as i32 in its own shape."""
    if z.array is not None:
        return Tensor.constant(z.array.astype(np.int32))
    return elementwise(lambda x: integer(x, z.dtype), [z], "i32")


def axis_of(node: Node, rank: int) -> int:
    """The axis attribute, counted from the front."""
    axis = int(node.attributes.get("axis", 1))
    if rank and not -rank <= axis < rank and len(node.operand(1).shape) == 1 and node.operand(1).shape[0] != 1:
        raise PatternDeclined(f"axis {axis} of a tensor of {rank} axes")
    return axis % rank if rank else 0


def check_blocks(shape: Sequence[int | None], scale: Sequence[int | None], axis: int, block: int) -> None:
    """The scale has one value per block along `axis` and the codes' sizes elsewhere."""
    if len(scale) != len(shape):
        raise PatternDeclined(f"a scale of {len(scale)} axes for blocks of a tensor of {len(shape)}")
    for i, (s, t) in enumerate(zip(scale, shape, strict=True)):
        expected = t if i != axis or t is None else -(-t // block)
        if s is not None and expected is not None and s != expected:
            raise PatternDeclined(f"a scale with {s} values along axis {i}, where blocks of {block} need {expected}")


def absorb(op: Node, *nodes: Node) -> None:
    """`op` does the work of `nodes` too: for the report."""
    op.graph.absorbed.setdefault(op.index, set()).update(n.index for n in nodes)


def ints(values: Sequence[int]) -> Tensor:
    return Tensor.constant(np.asarray(values, np.int64))


def onnx_op(op: Node, kind: str, *operands: Tensor | None, **attributes: object) -> Tensor:
    """An operator of the default domain at the place of `op`."""
    op.plain = True
    result: Tensor = op.graph.torch_op(kind, list(operands), [onnx.helper.make_attribute(k, v)
                                                            for k, v in attributes.items()], op)  # fmt: skip
    return result


def narrowed(op: Node, x: Tensor, shape: Sequence[int | None]) -> Tensor:
    """A tensor with the sizes that are known of it from elsewhere, which are checked when the program runs."""
    dims, sizes = build.dims(x.value), list[build.Extent]()
    for axis, (size, have, known) in enumerate(zip(dims, x.shape, shape, strict=True)):
        sizes.append(size if known is None or have is not None else known)
        if sizes[-1] is not size:
            assert_equal(size, sizes[-1], f"{op.where}: axis {axis} of the input has another size than {known}")
    spec = TensorSpec(tuple(s if isinstance(s, int) else None for s in sizes), x.dtype)
    kind = build.tensor_type(sizes, x.value.type.element_type)
    return x if spec.shape == x.shape else Tensor(spec, tensor.cast(kind, x.value))


class Parts:
    """Nodes that a node is taken apart into; each one reads the result of the one before it."""

    def __init__(self, op: Node) -> None:
        self.op, self.nodes = op, list[onnx.NodeProto]()

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.op.label}/{len(self.nodes)} {kind}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], name=self.op.label, **attributes))
        return name

    def number(self, value: float, like: Tensor) -> str:
        return self.add("Constant", value=onnx.helper.make_tensor("", ONNX[like.dtype], [], [value]))

    def done(self) -> Sequence[Tensor]:
        """The results of the node, which are those of the last part."""
        del self.nodes[-1].output[:]
        self.nodes[-1].output.extend(self.op.proto.output)
        return self.op.graph.taken_apart(self.op, self.nodes)
