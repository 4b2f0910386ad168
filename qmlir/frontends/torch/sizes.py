"""Sizes of a graph that are one number, whatever the sizes of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .graph import TorchGraph, mode_of, shape_of
from .views import RESHAPES, listed_sizes

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
    known: dict[sympy.Expr, int | None] = {**_guarded(env), **_listed(graph)}

    def settled(size: torch.SymInt | int) -> torch.SymInt | int:
        if isinstance(size, int):
            return size
        if (expression := size.node.expr) not in known:
            known[expression] = _only_value(expression, env, exported=bool(graph.ranges))
        found = known[expression]
        return size if found is None else found

    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes = [settled(s) for s in value.shape]
            if any(type(a) is not type(b) for a, b in zip(sizes, value.shape, strict=True)):
                node.meta["val"] = value.new_empty(sizes)
                node.meta.pop("tensor_meta", None)  # torch-mlir prefers its shape
        elif isinstance(value, torch.SymInt) and value.node.expr.is_Integer:
            # No other expression: `chunk(x, 5)` of five elements splits by `(n + 4) // 5`, which its rule needs.
            for user in list(node.users):
                of = {node: int(value.node.expr)}
                user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda a, k=of: k.get(a, a))
    graph.clean()


def _guarded(env: ShapeEnv) -> dict[sympy.Expr, int]:
    """The expressions that torch has found to be a number, and checks before it calls the graph."""
    from sympy import Eq

    found = {}
    for guard in env.guards:
        if isinstance(guard.expr, Eq):
            expression, number = sorted(guard.expr.args, key=lambda side: bool(side.is_Integer))
            if number.is_Integer:
                found[expression] = int(number)
    return found


def _listed(graph: TorchGraph) -> dict[sympy.Expr, int]:
    """The numbers in the lists of sizes of views. Torch computes these sizes anew: `m // (m // 8)` for an 8."""
    found = {}
    for node in graph.nodes:
        if node.target in RESHAPES:
            for axis, said in listed_sizes(node).items():
                size = shape_of(node)[axis]
                if isinstance(said, int) and said >= 0 and not isinstance(size, int):
                    found[size.node.expr] = said
    return found


def _only_value(expression: sympy.Expr, env: ShapeEnv, exported: bool) -> int | None:
    """The only value of an expression for the sizes that a program takes. Of an exported program they may be 1, which
    torch excludes by default."""
    from sympy import Eq
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    ranges = {}
    for symbol in expression.free_symbols:
        if (allowed := env.var_to_range.get(symbol)) is None:
            return None
        ranges[symbol] = ValueRanges(min(allowed.lower, 1), allowed.upper)
    bounds = bound_sympy(expression, ranges)
    if bounds.lower == bounds.upper and bounds.lower.is_Integer:
        return int(bounds.lower)
    if exported or expression.is_Symbol:
        return None
    # All guards together: torch may have checked that `n // 16 + 1` is less than 2.
    return 1 if env._maybe_evaluate_static(Eq(expression, 1)) else None
