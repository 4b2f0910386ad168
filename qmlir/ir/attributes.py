"""Attributes and types that generated IR needs in many places."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.mlir import ir, llvm


def iterator_types(kinds: Iterable[str]) -> ir.ArrayAttr:
    """`parallel` or `reduction` for each loop of a linalg op; the bindings have no class for one."""
    return ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds])


def entry_points(entry: str) -> ir.ArrayAttr:
    """What a dispatch launches: `entry` is `@executable::@export`."""
    return ir.ArrayAttr.get([ir.SymbolRefAttr.get([name.removeprefix("@") for name in entry.split("::")])])


def pointer_type() -> ir.Type:
    """An address in LLVM's dialect."""
    return llvm.PointerType.get()
