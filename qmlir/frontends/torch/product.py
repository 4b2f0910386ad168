"""A product of quantised values while it is read from an FX graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Node

from .graph import TorchGraph, dtype_of, shape_of
from .quantised import NodeOrTensor

# The steps of the epilogue, in order.
ACCUMULATOR, SCALED, BIAS, RESIDUAL, ACTIVATION, DONE = range(6)
FLOATS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


@dataclass
class TorchSide:
    """One factor: codes with their scale, or a plain float node."""

    node: Node
    dtype: str | None = None  # of codes; None for a plain float
    scale: NodeOrTensor | None = None
    zero_point: NodeOrTensor | None = None
    transposed: bool = False  # stored with its last two axes transposed

    @property
    def quantised(self) -> bool:
        return self.dtype is not None


@dataclass
class TorchProduct:
    """A product being read. `out` is the node whose value it computes so far, at step `stage` of the epilogue."""

    op: str
    lhs: TorchSide
    rhs: TorchSide
    root: Node
    out: Node
    out_dtype: str
    columns: int  # the result's axis with the weight's channels, counted from the end
    bias: NodeOrTensor | None = None
    residual: Node | None = None
    attributes: dict[str, object] = field(default_factory=dict)
    out_multiplier: torch.Tensor | None = None
    out_scale: NodeOrTensor | None = None
    out_zero_point: NodeOrTensor | None = None
    stage: int = ACCUMULATOR
    absorbed: list[Node] = field(default_factory=list)


def sizes_of(graph: TorchGraph, value: NodeOrTensor) -> Sequence[torch.SymInt | int]:
    known = graph.constant(value)
    return tuple(known.shape) if known is not None else shape_of(value)


def scale_after(p: TorchProduct) -> None:
    """Compute in f32 if the left operand is a 16-bit float. torch multiplies by unscaled codes, which are exact in
    16-bit floats, and scales the sum; the dialect scales the codes first, which is not exact in 16 bits."""
    if not p.lhs.quantised and dtype_of(p.lhs.node) in (torch.bfloat16, torch.float16):
        p.attributes["compute_dtype"] = "f32"
