"""A node of an FX graph as raising patterns see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from ...core.mlir import ir
from ...spec import TensorSpec
from ..raising import PatternDeclined, Raising, Tensor
from .dtypes import FROM_TORCH
from .graph import where
from .raise_ import label

if TYPE_CHECKING:
    from torch.fx.node import Argument


class TorchNode(Raising):
    """A node of an FX graph; see `Raising`. `operands` are the arguments that are tensors by the operator's schema,
    `attributes` the others by name; `tensor_of` returns the imported value of a node."""

    def __init__(self, tensor_of: Callable[[Node], Tensor], node: Node, location: ir.Location) -> None:
        self._tensor_of, self.node, self._location = tensor_of, node, location
        self.name, self.where = label(node), where(node)
        self._tensors: list[Node | None] = []
        self.attributes: dict[str, Argument] = {}
        schema = node.target._schema
        for i, a in enumerate(schema.arguments):
            value = node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
            if "Tensor" in str(a.type):
                self._tensors.append(value)
            else:
                self.attributes[a.name] = value
        self.tensor_names = [a.name for a in schema.arguments if "Tensor" in str(a.type)]

    @property
    def operands(self) -> Sequence[Tensor | None]:
        return [None if t is None else self._tensor_of(t) for t in self._tensors]

    @property
    def results(self) -> Sequence[TensorSpec | None]:
        val = self.node.meta["val"]
        return [spec_of(v) for v in (val if isinstance(val, (tuple, list)) else [val])]

    @property
    def location(self) -> ir.Location:
        return self._location

    def operand(self, i: int) -> Tensor:
        found = self.optional(i)
        if found is None:
            raise PatternDeclined(f"argument {self.tensor_names[i]!r} is missing")
        return found

    def optional(self, i: int) -> Tensor | None:
        if i >= len(self._tensors) or self._tensors[i] is None:
            return None
        return self._tensor_of(self._tensors[i])


def spec_of(val: torch.Tensor) -> TensorSpec:
    """The spec of a meta value; symbolic sizes are dynamic.

    Raises PatternDeclined for a dtype that the dialect has no name for."""
    if val.dtype not in FROM_TORCH:
        raise PatternDeclined(f"a tensor is {val.dtype}, which is unsupported")
    return TensorSpec(tuple(s if isinstance(s, int) else None for s in val.shape), FROM_TORCH[val.dtype])
