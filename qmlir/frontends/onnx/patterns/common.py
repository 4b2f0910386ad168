"""Helpers of the patterns: read scales, zero points and quantised values from the graph, and build ONNX operators."""

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

# The types of 8-bit codes, which a product takes as either operand.
BYTES = ("i8", "u8")


def scale_of(t: Tensor) -> Tensor:
    """A scale as f32, in the shape `[]` if it has one element, otherwise in its own shape."""
    t = scalar_of(t) if all(s == 1 for s in t.shape) else t
    return real(t)


def zero_of(t: Tensor | None) -> Tensor | None:
    """A zero point as i32, in the shape `[]` if it has one element; None for a constant 0 and for types that are not
    integers."""
    if t is None or not DTYPES[t.dtype].is_int:
        if t is not None and t.array is not None and t.array.astype(np.float32).any():
            raise PatternDeclined(f"a zero point of type {t.dtype} that is not 0")
        return None
    t = scalar_of(t) if all(s == 1 for s in t.shape) else t
    if t.array is not None:
        return Tensor.constant(t.array.astype(np.int32)) if t.array.any() else None
    return elementwise(lambda x: integer(x, t.dtype), [t], "i32")


def ratio(over: Sequence[Tensor], under: Tensor) -> Tensor:
    """The product of the scales `over`, divided by `under`, computed in f32 in this order as onnxruntime does it."""
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
    """Whether two scales or zero points are known to be equal: equal constants, the same tensor, or both absent."""
    if a is None or b is None:
        return a is b
    if a.array is None or b.array is None:
        return a is b
    return a.array.shape == b.array.shape and bool((a.array == b.array).all())


@dataclass(frozen=True)
class DequantizedValue:
    """The result of a DequantizeLinear, `(codes - zero) * scale`. The scale's shape is `[]`, or `[C]` along `axis`, or
    of the codes' rank if there is one scale per `block` codes along `axis`."""

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    axis: int
    block: int
    nodes: tuple[Node, ...]  # absorbed by a pattern that reads the codes
    dtype: str = "f32"  # of the dequantised value

    @property
    def per_tensor(self) -> bool:
        return not self.scale.shape

    def aligned(self, t: Tensor | None) -> Tensor | None:
        """The scale or the zero point, reshaped to broadcast (in blocks) against the codes."""
        if t is None or not t.shape or self.block:
            return t
        return at_axis(t, self.axis, len(self.codes.shape))

    def described(self) -> str:
        kind = "per tensor" if self.per_tensor else f"in blocks of {self.block}" if self.block else "per axis"
        return f"{self.codes.dtype}, {kind}" + ("" if self.per_tensor else f" {self.axis}")


def quantised_input(op: Node, i: int) -> DequantizedValue | None:
    """The quantised value that input `i` of a node reads: the result of a DequantizeLinear, also through an Identity or
    a Transpose of constant codes; None for any other input."""
    node = op.producer(i)
    if node is None:
        return None
    if node.op_type in ("DequantizeLinear", "com.microsoft.DequantizeLinear"):
        return of_dequantize(node)
    if node.op_type == "Identity":
        found = quantised_input(node, 0)
        return None if found is None else _and_node(found, node)
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


def _and_node(q: DequantizedValue, node: Node) -> DequantizedValue:
    return DequantizedValue(q.codes, q.scale, q.zero, q.axis, q.block, (*q.nodes, node), q.dtype)


def of_dequantize(node: Node) -> DequantizedValue:
    """The quantised value that a DequantizeLinear dequantises."""
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
    """A zero point as i32 with its shape unchanged."""
    if z.array is not None:
        return Tensor.constant(z.array.astype(np.int32))
    return elementwise(lambda x: integer(x, z.dtype), [z], "i32")


def axis_of(node: Node, rank: int) -> int:
    """The `axis` attribute as a non-negative index. Raises PatternDeclined if it is out of range for a vector."""
    axis = int(node.attributes.get("axis", 1))
    if rank and not -rank <= axis < rank and len(node.operand(1).shape) == 1 and node.operand(1).shape[0] != 1:
        raise PatternDeclined(f"axis {axis} of a tensor of {rank} axes")
    return axis % rank if rank else 0


def check_blocks(shape: Sequence[int | None], scale: Sequence[int | None], axis: int, block: int) -> None:
    """Raise PatternDeclined unless the scale has one value per block along `axis` and the codes' sizes along others."""
    if len(scale) != len(shape):
        raise PatternDeclined(f"a scale of {len(scale)} axes for blocks of a tensor of {len(shape)}")
    for i, (s, t) in enumerate(zip(scale, shape, strict=True)):
        expected = t if i != axis or t is None else -(-t // block)
        if s is not None and expected is not None and s != expected:
            raise PatternDeclined(f"a scale with {s} values along axis {i}, where blocks of {block} need {expected}")


def absorb(op: Node, *nodes: Node) -> None:
    """Record for the report that `op` also does the work of `nodes`."""
    op.graph.absorbed.setdefault(op.index, set()).update(n.index for n in nodes)


def ints(values: Sequence[int]) -> Tensor:
    return Tensor.constant(np.asarray(values, np.int64))


def onnx_op(op: Node, kind: str, *operands: Tensor | None, **attributes: object) -> Tensor:
    """Build an operator of the default domain at the place of `op`."""
    op.plain = True
    result: Tensor = op.graph.torch_op(kind, list(operands), [onnx.helper.make_attribute(k, v)
                                                            for k, v in attributes.items()], op)  # fmt: skip
    return result


def narrowed(op: Node, x: Tensor, shape: Sequence[int | None]) -> Tensor:
    """`x` with the static sizes of `shape`, which are known from elsewhere; the program checks them at run time."""
    dims, sizes = build.dims(x.value), list[build.Extent]()
    for axis, (size, have, known) in enumerate(zip(dims, x.shape, shape, strict=True)):
        sizes.append(size if known is None or have is not None else known)
        if sizes[-1] is not size:
            assert_equal(size, sizes[-1], f"{op.where}: axis {axis} of the input has another size than {known}")
    spec = TensorSpec(tuple(s if isinstance(s, int) else None for s in sizes), x.dtype)
    kind = build.tensor_type(sizes, x.value.type.element_type)
    return x if spec.shape == x.shape else Tensor(spec, tensor.cast(kind, x.value))


class Parts:
    """ONNX nodes that are imported in place of one node; the last of them makes its results."""

    def __init__(self, op: Node) -> None:
        self.op, self.nodes = op, list[onnx.NodeProto]()

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.op.label}/{len(self.nodes)} {kind}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [name], name=self.op.label, **attributes))
        return name

    def number(self, value: float, like: Tensor) -> str:
        return self.add("Constant", value=onnx.helper.make_tensor("", ONNX[like.dtype], [], [value]))

    def done(self) -> Sequence[Tensor]:
        """Import the nodes and return the results of the last one."""
        del self.nodes[-1].output[:]
        self.nodes[-1].output.extend(self.op.proto.output)
        return self.op.graph.taken_apart(self.op, self.nodes)
