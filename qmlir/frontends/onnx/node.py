"""The interface of an ONNX node to raising patterns, and of the graph to its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import onnx

from ... import ops
from ...core.mlir import ir
from ...spec import TensorSpec
from ..attention import AttentionCall
from ..raising import PatternDeclined, Raising, Tensor
from .model import Model
from .shapes import Shapes


class OnnxGraph(Protocol):
    """The graph that is being imported, as its nodes and their patterns use it.

    Attributes:
        producers: the node that makes each tensor.
        nodes: the nodes, in order.
        uses: how often each tensor is read, by nodes or as an output.
        absorbed: by a node's index, the nodes whose work its operation does.
        products: by a node's index, the product it was raised to, for the nodes after it.
        attentions: by a node's index, the attention it was raised to, for a transpose after it.
    """

    model: Model
    shapes: Shapes
    producers: dict[str, Node]
    uses: dict[str, int]
    absorbed: dict[int, set[int]]
    nodes: list[Node]
    products: dict[int, OnnxProduct]
    attentions: dict[int, AttentionCall]

    def tensor(self, name: str, user: Node | None) -> Tensor:
        """The tensor of that name. Raises FrontEndError when nothing before `user` makes it."""
        ...

    def torch_op(
        self, op_type: str, operands: Sequence[Tensor | None], attributes: Sequence[onnx.AttributeProto], user: Node
    ) -> Tensor:
        """Build an operator of the default domain that is not in the graph, with the name and location of `user`, and
        return its first result."""
        ...

    def taken_apart(self, node: Node, parts: Sequence[onnx.NodeProto]) -> list[Tensor]:
        """Import the nodes `parts` in place of `node` and return its results."""
        ...


class Node(Raising):
    """The node that a pattern raises; see `Raising`. Built-in patterns also look at other nodes, through `producer` and
    `uses`."""

    def __init__(self, graph: OnnxGraph, proto: onnx.NodeProto, index: int) -> None:
        self.graph, self.proto, self.index = graph, proto, index
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        self.op_type = f"{domain}.{proto.op_type}" if domain else proto.op_type
        self.name = f"onnx.{self.op_type}"
        self.label = proto.name or f"{proto.op_type}_{index}"
        self.where = graph.model.where(self.label)
        self.why_left = ""
        self.plain = False  # a float operator that a pattern builds: not reported

    @cached_property
    def attributes(self) -> dict[str, Any]:  # type: ignore[override]
        found: dict[str, Any] = {}
        for a in self.proto.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                found[a.name] = self.graph.model.array(a.t)[0]
                continue
            value = onnx.helper.get_attribute_value(a)
            found[a.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
        return found

    @property
    def operands(self) -> Sequence[Tensor | None]:
        return [self.graph.tensor(n, self) if n else None for n in self.proto.input]

    @property
    def results(self) -> Sequence[TensorSpec | None]:
        return [self.graph.shapes.spec(n) for n in self.proto.output]

    @property
    def location(self) -> ir.Location:
        return ir.Location.name(self.where)

    @property
    def opset(self) -> int:
        """The opset version of the default domain."""
        return self.graph.model.opsets.get("", 1)

    def operand(self, i: int) -> Tensor:
        found = self.optional(i)
        if found is None:
            raise PatternDeclined(f"input {i} is missing")
        return found

    def optional(self, i: int) -> Tensor | None:
        name = self.proto.input[i] if i < len(self.proto.input) else ""
        return self.graph.tensor(name, self) if name else None

    def producer(self, i: int) -> Node | None:
        """The node that makes input `i`, None for an input of the graph or a constant."""
        return self.graph.producers.get(self.proto.input[i]) if i < len(self.proto.input) else None

    def named(self, i: int) -> tuple[int | str, ...]:
        """The sizes of input `i`; a dynamic size is its name in the graph, or "" if it has none."""
        return self.graph.shapes.named(self.proto.input[i], self.operand(i).shape)

    def wants(self, result: int) -> bool:
        """Whether the node has this optional result."""
        return result < len(self.proto.output) and bool(self.proto.output[result])

    def sized(self, made: Tensor, names: Sequence[int | str], result: int = 0) -> Tensor:
        """Record the names of the dynamic sizes of `made`, a result of the node, and return it."""
        if self.wants(result):
            self.graph.shapes.learn(self.proto.output[result], made.spec, names)
        return made

    def sized_as(self, i: int, made: Tensor, result: int = 0) -> Tensor:
        """`sized` with the names of the sizes of input `i`."""
        return self.sized(made, self.named(i), result)

    def left(self, reason: str) -> None:
        """Report the node as left, with a warning: what the pattern builds is right, but not an integer product."""
        self.why_left = reason

    def uses(self) -> int:
        """How often the node's first result is read, by nodes or as an output of the graph."""
        return self.graph.uses.get(self.proto.output[0], 0)


@dataclass(frozen=True)
class OnnxProduct:
    """A raised product, kept so that a quantisation after it can move into its epilogue.

    Attributes:
        operation: `scaled_matmul` or `conv2d_q`.
        arguments: operands and attributes, except the scales and the bias.
        lhs_scale, rhs_scale: as the operation takes them; None for a plain float side.
        factors: the scales, shaped to broadcast with the result; None when one varies along K.
        bias: i32, added to the accumulator, or f32.
        nodes: the nodes that the operation absorbs.
        finish: makes the node's result of the operation's, for example by dropping an axis that only the latter has.
    """

    operation: str
    arguments: Mapping[str, object]
    lhs_scale: Tensor | None
    rhs_scale: Tensor | None
    factors: tuple[Tensor, Tensor] | None
    bias: Tensor | None
    nodes: tuple[Node, ...]
    finish: Callable[[Tensor], Tensor] = lambda t: t

    def as_float(self, op: Node, dtype: str = "f32") -> Tensor:
        """Build the product with a float result."""
        made = op.build(self.operation, **self.arguments, **self.scales, bias=self.bias, out_dtype=dtype)
        return self.finish(made)

    @property
    def scales(self) -> dict[str, Tensor | None]:
        """The scales of both sides, by their operand names."""
        lhs, rhs = ops.named(self.operation).definition.SIDES
        return {lhs.scale: self.lhs_scale, rhs.scale: self.rhs_scale}
