"""Sizes of a graph that are one number, whatever the sizes of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from .graph import TorchGraph, mode_of

if TYPE_CHECKING:
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


def settle_sizes(graph: TorchGraph) -> None:
    """Put numbers in the place of expressions such as `1 - max(0, 1 - n)`, which is 1 for every n that is not 0, and of
    those that torch guards: for the sizes of a call for which `n // 8` is 1, torch captures a graph of its own.

    torch-mlir compiles an axis whose size it does not know as one that is not repeated by broadcasting.
    """
    env = getattr(mode_of(graph.gm.graph), "shape_env", None)
    if env is None:
        return
    graph.clean()
    known: dict[sympy.Expr, int | None] = dict(_guarded(env))
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes = [_settled(s, env, known) for s in value.shape]
            if any(type(a) is not type(b) for a, b in zip(sizes, value.shape, strict=True)):
                node.meta["val"] = value.new_empty(sizes)
                node.meta.pop("tensor_meta", None)  # torch-mlir prefers its shape
        elif isinstance(value, torch.SymInt) and isinstance(found := _settled(value, env, known), int):
            for user in list(node.users):
                of = {node: found}
                user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda a, k=of: k.get(a, a))
    graph.clean()


def _guarded(env: ShapeEnv) -> Iterator[tuple[sympy.Expr, int]]:
    """The expressions that torch has found to be a number, and checks before it calls the graph."""
    from sympy import Eq

    for guard in env.guards:
        if isinstance(guard.expr, Eq):
            sides = sorted(guard.expr.args, key=lambda side: bool(side.is_Integer))
            if sides[1].is_Integer:
                yield sides[0], int(sides[1])


def _settled(size: torch.SymInt | int, env: ShapeEnv, known: dict[sympy.Expr, int | None]) -> torch.SymInt | int:
    if isinstance(size, int):
        return size
    if (expression := size.node.expr) not in known:
        known[expression] = _only_value(expression, env)
    found = known[expression]
    return size if found is None else found


def _only_value(expression: sympy.Expr, env: ShapeEnv) -> int | None:
    """The only value of an expression for the sizes that a program takes: also 1, which torch excludes by default."""
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    ranges = {}
    for symbol in expression.free_symbols:
        if (allowed := env.var_to_range.get(symbol)) is None:
            return None
        ranges[symbol] = ValueRanges(min(allowed.lower, 1), allowed.upper)
    bounds = bound_sympy(expression, ranges)
    return int(bounds.lower) if bounds.lower == bounds.upper and bounds.lower.is_Integer else None
