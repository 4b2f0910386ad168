"""Raise a torch program: replace quantised operators of an FX graph by calls of `torch.ops.qmlir.*`.

Dynamic quantisations are raised first (their scales and codes are one operation), then products with their epilogues,
then the remaining quantisations and dequantisations. The report names every quantised operator of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from ...compiler.front_end import ImportReport
from ...compiler.patterns import pattern_for
from ..raising import PatternDeclined
from .dtypes import FROM_TORCH, TO_TORCH
from .dynamic import fuse_dynamic_quantize
from .epilogue import absorb, emit
from .graph import TorchGraph, dtype_of, is_tensor, retyped, shape_of, where
from .products import PRODUCTS, QUANTISED_PRODUCTS, read_product, reads_codes
from .quantised import dequantised, quantised
from .simplify import name_of, simplify

if TYPE_CHECKING:
    from torch.fx.node import Argument

_NAMESPACES = ("quantized_decomposed::", "torchao::")


def raise_quantised(graph: TorchGraph, report: ImportReport) -> None:
    """Rewrite `graph` in place, and enter in `report` what became of each quantised operator."""
    simplify(graph)
    source = {n: (label(n), where(n)) for n in graph.nodes if is_quantised(n)}
    outcome: dict[Node, tuple[str, str]] = {}

    for node in graph.nodes:
        if node in source and not _has_pattern(node):
            _try(outcome, node, lambda node=node: fuse_dynamic_quantize(graph, node, outcome))
    graph.clean()
    for node in graph.nodes:
        if node.op == "call_function" and not node._erased:
            _try(outcome, node, lambda node=node: _product(graph, node, source, outcome))
    graph.clean()
    for node in graph.nodes:
        if node in source and not _has_pattern(node):
            _try(outcome, node, lambda node=node: _raise_remaining(graph, node, outcome))
    graph.clean()
    graph.gm.graph.lint()
    graph.gm.recompile()
    _report(report, source, outcome)


def is_quantised(node: Node) -> bool:
    """Whether a node calls an operator of quantised programs."""
    if node.op != "call_function":
        return False
    return name_of(node).startswith(_NAMESPACES) or node.target in QUANTISED_PRODUCTS


def label(node: Node) -> str:
    """The name that raising patterns are registered under."""
    return "torch." + name_of(node).replace("::", ".")


def _has_pattern(node: Node) -> bool:
    """Whether another package registered a pattern for the operator, which is applied when the graph is imported."""
    return pattern_for(label(node)) is not None


def _try(outcome: dict[Node, tuple[str, str]], node: Node, step: Callable[..., object]) -> None:
    try:
        step()
    except PatternDeclined as e:
        outcome.setdefault(node, ("left", str(e)))


def _product(
    graph: TorchGraph, node: Node, source: dict[Node, tuple[str, str]], outcome: dict[Node, tuple[str, str]]
) -> None:
    if node.target not in PRODUCTS:
        return
    try:
        found = read_product(graph, node)
        if found is None and reads_codes(graph, node):
            raise PatternDeclined("the dialect has no product of this form")
    except PatternDeclined:
        source.setdefault(node, (label(node), where(node)))
        raise
    if found is None:
        return
    absorb(graph, found)
    emit(graph, found)
    source.setdefault(node, (label(node), where(node)))
    outcome[node] = ("raised", f"qmlir.{found.op}")
    for taken in found.absorbed:
        source.setdefault(taken, (label(taken), where(taken)))
        outcome[taken] = ("fused", where(node))


def _raise_remaining(graph: TorchGraph, node: Node, outcome: dict[Node, tuple[str, str]]) -> None:
    """Raise a quantisation or dequantisation that no product absorbed."""
    d = dequantised(graph, node)
    q = quantised(graph, node) if d is None else None
    scale: torch.Tensor | torch.fx.Node
    if d is not None and d.scale is not None:
        kwargs = _operands(graph, node, zero_point=d.zero_point)
        scale = d.scale if isinstance(d.scale, Node) else graph.new_constant(d.scale, node)
        if is_tensor(scale) and dtype_of(scale) == torch.float64:
            scale = graph.call(node, torch.ops.aten._to_copy.default, (scale,), {"dtype": torch.float32},
                               retyped(scale.meta["val"], torch.float32))  # fmt: skip
        if d.dtype != FROM_TORCH[dtype_of(d.codes)]:
            kwargs["dtype"] = d.dtype
        kwargs["out_dtype"] = FROM_TORCH[dtype_of(node)]
        new = graph.call(node, torch.ops.qmlir.dequantize.default, (d.codes, scale), kwargs, node.meta["val"])
        outcome[node] = ("raised", "qmlir.dequant")
    elif q is not None:
        scale = q.scale
        if q.multiplier is not None:
            scale = torch.tensor(reciprocal_of(q.multiplier), dtype=torch.float32)
        scale = scale if isinstance(scale, Node) else graph.new_constant(scale, node)
        kwargs = _operands(graph, node, zero_point=q.zero_point)
        kwargs["out_dtype"] = q.dtype
        if TO_TORCH[q.dtype] in (torch.int8, torch.uint8):
            kwargs["clamp"] = [q.lo, q.hi]
        new = graph.call(node, torch.ops.qmlir.quantize.default, (q.source, scale), kwargs, node.meta["val"])
        outcome[node] = ("raised", "qmlir.quantize")
    else:
        return
    graph.replace(node, new)


def _operands(graph: TorchGraph, node: Node, **values: torch.Tensor | None) -> dict[str, Argument]:
    return {
        k: v if isinstance(v, Node) else graph.new_constant(v, node) for k, v in values.items() if v is not None
    }  # fmt: skip


def reciprocal_of(multiplier: float) -> float:
    """An f32 whose reciprocal in f32 is `multiplier`, if there is one: torch multiplies by the reciprocal of the scale
    as a double, the dialect by that of an f32."""
    wanted = torch.tensor(multiplier, dtype=torch.float32)
    start = 1.0 / wanted
    for candidate in (start, torch.nextafter(start, start * 2), torch.nextafter(start, start / 2)):
        if 1.0 / candidate == wanted:
            return float(candidate)
    return float(start)


def _report(report: ImportReport, source: dict[Node, tuple[str, str]], outcome: dict[Node, tuple[str, str]]) -> None:
    for node, (op, place) in source.items():
        kind, detail = outcome.get(node, ("", ""))
        if kind == "raised":
            report.add_raised(op, place, detail)
        elif kind == "fused" or (not kind and node._erased):
            report.add_fused(op, place, detail or "the product that reads it")
        elif not node._erased and not (kind == "" and _has_pattern(node)):
            report.add_left(op, place, detail or "no rule matches it")


__all__ = ["is_quantised", "label", "raise_quantised", "shape_of"]
