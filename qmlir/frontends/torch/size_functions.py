"""Functions of sizes that torch-mlir's importer does not know, or that IREE does not compute, in terms of others."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TypeAlias, TypeGuard

import torch
from torch.fx import Node

from .graph import TorchGraph, aten

_Size: TypeAlias = "Node | int"
_MAX_DENOMINATOR = 1 << 20  # the largest denominator of a factor of a size
_RENAMED = {
    torch.sym_float: aten.Float.Scalar, torch.sym_max: torch.ops.prim.max.int, torch.sym_min: torch.ops.prim.min.int,
}  # fmt: skip


def rewrite_size_functions(graph: TorchGraph) -> None:
    """Replace functions of sizes by sums, products, quotients and bounds. What remains is left to the importer to
    refuse."""
    for node in graph.nodes:
        if isinstance(node.meta.get("val"), torch.SymInt) and (rule := _RULES.get(node.target)) is not None:
            found = rule(lambda function, *args, at=node: _call(graph, at, function, args), *node.args)
            if isinstance(found, Node):
                graph.replace(node, found)
    for node in graph.nodes:
        node.target = _RENAMED.get(node.target, node.target)
    graph.clean()


_Call: TypeAlias = "Callable[..., _Size]"


def _call(graph: TorchGraph, before: Node, function: Callable[..., _Size], args: tuple[_Size, ...]) -> _Size:
    """A function of sizes, which is computed now if all of them are numbers."""
    value = function(*(a.meta["val"] if isinstance(a, Node) else a for a in args))
    return graph.call(before, function, args, {}, value) if any(isinstance(a, Node) for a in args) else value


def _sum(call: _Call, sizes: tuple[_Size, ...]) -> _Size:
    total, *others = sizes
    for other in others:
        total = call(operator.add, total, other)
    return total


def _remainder(call: _Call, a: _Size, b: _Size) -> _Size:
    """torch-mlir takes `%` for C's remainder and does not convert it."""
    return call(operator.sub, a, call(operator.mul, call(operator.floordiv, a, b), b))


def _power(call: _Call, a: _Size, exponent: object) -> _Size | None:
    if not isinstance(exponent, int) or not 1 <= exponent <= 16:
        return None
    product = a
    for _ in range(exponent - 1):
        product = call(operator.mul, product, a)
    return product


def _absolute(call: _Call, a: _Size) -> _Size:
    return call(torch.sym_max, a, call(operator.neg, a))


def _shifted_left(call: _Call, a: _Size, bits: object) -> _Size | None:
    return call(operator.mul, a, 1 << bits) if isinstance(bits, int) and bits >= 0 else None


def _shifted_right(call: _Call, a: _Size, bits: object) -> _Size | None:
    return call(operator.floordiv, a, 1 << bits) if isinstance(bits, int) and bits >= 0 else None


def _floor(call: _Call, real: object) -> _Size | None:
    found = _quotient(call, real)
    return None if found is None else call(operator.floordiv, *found)


def _ceil(call: _Call, real: object) -> _Size | None:
    found = _quotient(call, real)
    if found is None:
        return None
    a, b = found
    return call(operator.neg, call(operator.floordiv, call(operator.neg, a), b))


def _trunc(call: _Call, real: object) -> _Size | None:
    found = _quotient(call, real)
    if found is None or not all(_is_no_less(x, 0) for x in found):
        return None
    return call(operator.floordiv, *found)


def _is_no_less(size: _Size, least: int) -> bool:
    value = size.meta["val"] if isinstance(size, Node) else size
    return bool(torch.fx.experimental.symbolic_shapes.statically_known_true(value >= least))


def _quotient(call: _Call, real: object) -> tuple[_Size, _Size] | None:
    """Dividend and divisor of a quotient of sizes, or of a size times a factor such as 1.5, which is 3 over 2."""
    if not isinstance(real, Node) or real.target not in (operator.truediv, operator.mul):
        return None
    a, b = map(_without_cast, real.args)
    if real.target is operator.truediv:
        return (a, b) if _is_size(a) and _is_size(b) else None
    size, factor = (a, b) if isinstance(b, float) else (b, a)
    if not isinstance(factor, float) or not math.isfinite(factor) or factor <= 0 or not _is_size(size):
        return None
    over, under = factor.as_integer_ratio()
    return (call(operator.mul, size, over), under) if under <= _MAX_DENOMINATOR else None


def _without_cast(value: object) -> object:
    casts = (torch.sym_float, _RENAMED[torch.sym_float])  # the graph may have been rewritten before
    return value.args[0] if isinstance(value, Node) and value.target in casts else value


def _is_size(value: object) -> TypeGuard[_Size]:
    known = value.meta["val"] if isinstance(value, Node) else value
    return isinstance(known, (int, torch.SymInt))


_RULES: dict[object, Callable[..., _Size | None]] = {
    torch.sym_sum: _sum,
    operator.mod: _remainder,
    operator.pow: _power,
    pow: _power,
    abs: _absolute,
    operator.abs: _absolute,
    operator.lshift: _shifted_left,
    operator.rshift: _shifted_right,
    math.floor: _floor,
    math.ceil: _ceil,
    math.trunc: _trunc,
}
