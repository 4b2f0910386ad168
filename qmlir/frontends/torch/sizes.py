"""Sizes of a graph that are one number, whatever the sizes of its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .graph import TorchGraph, mode_of, shape_of
from .views import RESHAPES, axes_together, listed_sizes

if TYPE_CHECKING:
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

LEAST_OF_TORCH = 2  # the exporter's lower bound of every size; a program takes smaller ones too


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
            known[expression] = _only_value(graph, expression, env)
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
    """What the numbers in the lists of sizes of views say. Torch computes these sizes anew: `m // (m // 8)` for an 8.
    An axis that becomes 4x4 has 16 elements."""
    found: dict[sympy.Expr, int] = {}
    for node in graph.nodes:
        if node.target not in RESHAPES:
            continue
        old, new = list(shape_of(node.args[0])), list(shape_of(node))
        for axis, said in listed_sizes(node).items():
            if isinstance(said, int) and said >= 0:
                size, new[axis] = new[axis], said
                if not isinstance(size, int):
                    found[size.node.expr] = said
        for i, j in axes_together(old, new) if old and new else ():
            found.update(_implied([old[axis] for axis in i], [new[axis] for axis in j]))
    return found


def _implied(first: Sequence[torch.SymInt | int], second: Sequence[torch.SymInt | int]) -> dict[sympy.Expr, int]:
    """The size that is not a number, if it is the only one in two lists with the same product."""
    unknown = [size.node.expr for size in (*first, *second) if not isinstance(size, int)]
    if len(unknown) != 1:
        return {}
    least, most = sorted(math.prod(size for size in sizes if isinstance(size, int)) for sizes in (first, second))
    return {unknown[0]: most // least} if least and most % least == 0 else {}


def _only_value(graph: TorchGraph, expression: sympy.Expr, env: ShapeEnv) -> int | None:
    """The only value of an expression for the sizes that a program takes. Those of an exported program may be 0 or 1,
    which torch excludes as it traces; what is a number for all but 0 makes the program refuse 0."""
    from sympy import Eq

    symbols = expression.free_symbols
    if any(symbol not in env.var_to_range for symbol in symbols):
        return None
    for least in (0, 1):
        if (value := _constant(expression, env, least)) is not None:
            graph.not_empty |= symbols if least else set()
            return value
    if graph.ranges or expression.is_Symbol:
        return None
    # All guards together: torch may have checked that `n // 16 + 1` is less than 2.
    return 1 if env._maybe_evaluate_static(Eq(expression, 1)) else None


def _constant(expression: sympy.Expr, env: ShapeEnv, least: int) -> int | None:
    """The value of an expression that is the same for all sizes in their ranges. Those of arguments start at `least` if
    torch's start at 2 or less: it gives these to every size."""
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    ranges = {symbol: env.var_to_range[symbol] for symbol in expression.free_symbols}
    for symbol, allowed in ranges.items():
        if allowed.lower <= LEAST_OF_TORCH and not env.is_unbacked_symint(symbol):  # no count of what a tensor holds
            ranges[symbol] = ValueRanges(least, allowed.upper)
    bounds = bound_sympy(expression, ranges)
    return int(bounds.lower) if bounds.lower == bounds.upper and bounds.lower.is_Integer else None
