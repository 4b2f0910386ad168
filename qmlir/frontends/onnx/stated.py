"""Result shapes that an operand states: of Reshape, Expand, ConstantOfShape and Resize. onnx infers them if the operand
is constant, and in some opsets if nodes compute it; this module uses every known size of a partly known operand."""

from __future__ import annotations

from collections.abc import Sequence

from .folded import Folding
from .node import Node
from .shapes import Shapes, factors
from .types import ELEMENTS

KnownSizes = tuple[int | str, ...]
_SHAPE_OPERAND = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Resize": 3}


def learn_stated(node: Node, shapes: Shapes, folding: Folding) -> None:
    """Record the shape of a node's result as far as an operand states it, with the names of dynamic sizes."""
    place = _SHAPE_OPERAND.get(node.op_type)
    if place is None or (shape := node.optional(place)) is None or (x := node.optional(0)) is None:
        return
    sizes = folding.sizes(node.proto.input[place], shape)
    found = None if sizes is None else _sizes(node, shapes.named(node.proto.input[0], x.shape), sizes)
    if found is None:
        return
    dtype = x.dtype
    if node.op_type == "ConstantOfShape":
        dtype = next((ELEMENTS[a.t.data_type].dtype for a in node.proto.attribute if a.t.data_type in ELEMENTS), "f32")
    shapes.learn_sizes(node.proto.output[0], dtype, found)


def _sizes(node: Node, had: KnownSizes, sizes: KnownSizes) -> KnownSizes | None:
    if any(isinstance(s, int) and s < (-1 if node.op_type == "Reshape" else 0) for s in sizes):
        return None
    if node.op_type == "Reshape":
        return None if node.attributes.get("allowzero", 0) and 0 in sizes else _reshaped(had, sizes)
    if node.op_type == "Expand":
        return _broadcast(had, sizes)
    if node.op_type == "Resize" and (
        len(sizes) != len(had) or {"axes", "keep_aspect_ratio_policy"} & set(node.attributes)
    ):
        return None
    return sizes


def _reshaped(had: KnownSizes, sizes: KnownSizes) -> KnownSizes | None:
    """The shape after a Reshape to `sizes`: 0 keeps the input's size, -1 is the size that remains."""
    if any(s == 0 and i >= len(had) for i, s in enumerate(sizes)) or sizes.count(-1) > 1:
        return None
    made = [had[i] if s == 0 else s for i, s in enumerate(sizes)]
    if -1 in made:
        made[made.index(-1)] = _quotient(had, [s for s in made if s != -1])
    return tuple(made)


def _quotient(had: Sequence[int | str], taken: Sequence[int | str]) -> int | str:
    """The product of the sizes `had` divided by that of `taken`; "" if it is not known."""
    whole, part = factors(had), factors(taken)
    if whole is None or part is None or part - whole:
        return ""
    size, names = 1, list[str]()
    for factor in (whole - part).elements():
        if isinstance(factor, int):
            size *= factor
        else:
            names.append(factor)
    return size if not names else "*".join(names) if size == 1 else ""


def _broadcast(had: KnownSizes, wanted: KnownSizes) -> KnownSizes:
    rank = max(len(had), len(wanted))
    pairs = zip((1,) * (rank - len(had)) + had, (1,) * (rank - len(wanted)) + wanted, strict=True)
    return tuple(_wider(a, b) for a, b in pairs)


def _wider(a: int | str, b: int | str) -> int | str:
    if a == b or b == 1:
        return a
    if a == 1 or isinstance(b, int):
        return b
    return a if isinstance(a, int) else ""
