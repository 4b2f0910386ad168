"""Read the host function of a program: operand segments, predicates, affine maps and constants."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from qmlir.core.mlir import ir, raw_data
from qmlir.emulation.cuda.formats import Array
from qmlir.emulation.cuda.instructions import PtxError


def segments(op: Any) -> list[int]:
    if "operandSegmentSizes" not in op.attributes:
        return []
    return [int(n) for n in op.attributes["operandSegmentSizes"]]


def predicate(op: Any) -> int:
    """Return the index in eq, ne, lt, le, gt, ge. Host values are never negative, so unsigned ones are the same."""
    value = int(op.attributes["predicate"].value)
    return value if value < 6 else value - 4


def affine(affine_map: Any, operands: list[int]) -> list[int]:
    dims, symbols = operands[: affine_map.n_dims], operands[affine_map.n_dims :]
    return [affine_value(e, dims, symbols) for e in affine_map.results]


_BINARY: tuple[tuple[Any, Callable[[int, int], int]], ...] = (
    (ir.AffineAddExpr, lambda a, b: a + b),
    (ir.AffineMulExpr, lambda a, b: a * b),
    (ir.AffineModExpr, lambda a, b: a % b),
    (ir.AffineFloorDivExpr, lambda a, b: a // b),
    (ir.AffineCeilDivExpr, lambda a, b: -(-a // b)),
)


def affine_value(expr: Any, dims: list[int], symbols: list[int]) -> int:
    if isinstance(expr, ir.AffineConstantExpr):
        return int(ir.AffineConstantExpr(expr).value)
    if isinstance(expr, ir.AffineDimExpr):
        return dims[ir.AffineDimExpr(expr).position]
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[ir.AffineSymbolExpr(expr).position]
    kind, f = next((k, f) for k, f in _BINARY if isinstance(expr, k))
    binary = kind(expr)
    return f(affine_value(binary.lhs, dims, symbols), affine_value(binary.rhs, dims, symbols))


def resources(text: str) -> dict[str, Array]:
    """Return the large constants at the end of a module's text, without the 4 bytes of alignment in front of each."""
    _, found, behind = text.rpartition("dialect_resources:")
    if not found:  # the search below would take quadratic time on the digits of other constants
        return {}
    return {
        name: np.frombuffer(bytes.fromhex(digits), np.uint8)[4:]
        for name, digits in re.findall(r'^\s*(\w+): "0x([0-9A-Fa-f]*)"', behind, re.MULTILINE)
    }


def constant_bytes(attribute: Any, resources: dict[str, Array]) -> Array:
    """The bytes of a constant as IREE would write them."""
    text = str(attribute)
    if text.startswith("#util.composite<"):
        start = text.index("[") + 1
        parts = top_level(text[start : text.rindex("]")])
        read = [constant_bytes(ir.Attribute.parse(p), resources) for p in parts]
        return np.concatenate(read or [np.zeros(0, np.uint8)])
    if named := re.match(r"dense_resource<(\w+)>", text):
        # MLIR appends a number to a name that another context of the process has.
        return resources[named[1] if named[1] in resources else named[1].rpartition("_")[0]]
    if isinstance(attribute, ir.DenseElementsAttr):
        kind = ir.ShapedType(attribute.type)
        count = int(np.prod([kind.get_dim_size(d) for d in range(kind.rank)], dtype=np.int64))
        element = kind.element_type
        if isinstance(element, ir.IntegerType) and element.width < 8:
            codes = np.array([int(v) for v in attribute], np.int64) & ((1 << element.width) - 1)
            per = 8 // element.width
            codes = np.pad(codes, (0, -codes.size % per)).reshape(-1, per)
            return (codes << np.arange(per) * element.width).sum(axis=1).astype(np.uint8)
        data = np.frombuffer(raw_data(attribute), np.uint8)
        return np.tile(data, count) if attribute.is_splat else data
    raise PtxError(f"a constant that cannot be read: {text[:80]}")


def top_level(text: str) -> list[str]:
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "<[(":
            depth += 1
        elif not quoted and c in ">])":
            depth -= 1
        elif c == "," and depth == 0 and not quoted:
            parts.append(text[start:i].strip())
            start = i + 1
    return [p for p in (*parts, text[start:].strip()) if p]
