"""Attributes and types that generated IR needs in many places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..core.mlir import ir, llvm

if TYPE_CHECKING:
    from ..core.mlir import OpLike


def iterator_types(kinds: Iterable[str]) -> ir.ArrayAttr:
    """`parallel` or `reduction` for each loop of a linalg op; the bindings have no class for one."""
    return ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds])


def loop_kinds(op: OpLike) -> list[str]:
    """`parallel` or `reduction` for each loop of a `linalg.generic`."""
    return ["reduction" if "reduction" in str(kind) else "parallel" for kind in op.attributes["iterator_types"]]


def is_elementwise(op: OpLike) -> bool:
    """Whether an op is a `linalg.generic` without a reduction."""
    return op.name == "linalg.generic" and "reduction" not in loop_kinds(op)


def axis_of(op: OpLike) -> int:
    """The axis that a sort, a scan or a softmax runs along."""
    return int(ir.IntegerAttr(op.attributes["dimension"]).value)


def reassociation(op: OpLike) -> list[list[int]]:
    """The groups of axes of an `expand_shape` (result axes per source axis) or `collapse_shape` (source axes per result
    axis)."""
    return [[int(i.value) for i in group] for group in op.attributes["reassociation"]]


def window_steps(op: OpLike, name: str, axes: int) -> tuple[int, ...]:
    """`strides` or `dilations` of a named convolution or pooling over this many axes; 1 if absent."""
    if name not in op.attributes:
        return (1,) * axes
    return tuple(int(v) for v in ir.DenseIntElementsAttr(op.attributes[name]))


def window_pair(op: OpLike, name: str) -> tuple[int, int]:
    """`window_steps` over height and width."""
    height, width = window_steps(op, name, 2)
    return height, width


def entry_points(entry: str) -> ir.ArrayAttr:
    """The attribute for the entry point that a dispatch launches; `entry` is `@executable::@export`."""
    return ir.ArrayAttr.get([ir.SymbolRefAttr.get([name.removeprefix("@") for name in entry.split("::")])])


def pointer_type() -> ir.Type:
    """The pointer type of the LLVM dialect."""
    return llvm.PointerType.get()
