"""Fuse dynamic quantisation in FX graphs: the choice of the scales and the quantisation become one operation."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch.fx import Node

from ...dialect.dtypes import DTYPES
from ...dialect.ods import Keywords
from ..raising import PatternDeclined
from .dtypes import FROM_TORCH, TO_TORCH
from .graph import VIEWS, TorchGraph, argument, aten, is_tensor, retyped, same, shape_of, where
from .quantised import _size, block_counts, quantised, reshaped
from .simplify import name_of

_TENSOR = {"quantized_decomposed::choose_qparams.tensor": False,
           "quantized_decomposed::choose_qparams_symmetric.tensor": True}  # fmt: skip
_AFFINE = "torchao::choose_qparams_affine"


def fuse_dynamic_quantize(graph: TorchGraph, node: Node, outcome: dict[Node, tuple[str, str]]) -> None:
    """If `node` chooses scales, fuse it and the quantisations that use them into one `dynamic_quantize`."""
    name = name_of(node)
    if name not in (*_TENSOR, _AFFINE):
        return
    source: torch.fx.Node = node.args[0]
    attributes, block = _attributes(node)
    results = {u.args[1]: u for u in node.users if u.target is operator.getitem}
    scale, zero = results.get(0), results.get(1)
    users = [
        u for u in list(scale.users if scale is not None else ())
        if _quantises(graph, u, source, scale, zero, attributes)
    ]  # fmt: skip
    shape = [] if attributes["granularity"] == "tensor" else block_counts(shape_of(source), block)
    val = source.meta["val"]
    codes_type = TO_TORCH[attributes["out_dtype"]]
    made = graph.call(node, torch.ops.qmlir.dynamic_quantize.default, (source,), attributes,
                      (retyped(val, codes_type), retyped(val, torch.float32, shape),
                       retyped(val, torch.int32, shape)))  # fmt: skip
    codes, new_scale, new_zero = (
        graph.call(node, operator.getitem, (made, i), {}, made.meta["val"][i]) for i in range(3)
    )
    outcome[node] = ("raised", "qmlir.dynamic_quantize")
    for user in users:
        graph.replace(user, codes)
        outcome[user] = ("fused", where(node))
    for old, new in ((scale, new_scale), (zero, new_zero)):
        if old is None or not old.users:
            continue
        wanted = old.meta["val"]
        replacement = reshaped(graph, node, new, tuple(wanted.shape))
        if old is zero and attributes["symmetric"]:
            replacement = _zeros(graph, node, wanted)
        graph.replace(old, replacement)


def _zeros(graph: TorchGraph, node: Node, val: torch.Tensor) -> Node:
    """The zero point of a symmetric quantisation, for the nodes that read it."""
    sizes = list(val.shape)
    if not all(isinstance(s, int) for s in sizes):
        # The users drop it: a constant 0 broadcasts.
        sizes = [1] * len(sizes)
    return graph.new_constant(torch.zeros(sizes, dtype=torch.int32), node)


def _attributes(node: Node) -> tuple[Keywords, Sequence[torch.SymInt | int]]:
    """The attributes of `dynamic_quantize`, and the block of elements that share a scale."""
    source: torch.fx.Node = node.args[0]
    if not is_tensor(source):
        raise PatternDeclined("the input is not a tensor")
    shape = shape_of(source)
    name = name_of(node)
    if name in _TENSOR:
        symmetric, dtype, block = _TENSOR[name], argument(node, "dtype"), list(shape)
        lo, hi, eps = argument(node, "quant_min"), argument(node, "quant_max"), argument(node, "eps")
        granularity, group = "tensor", None
    else:
        mapping = str(argument(node, "mapping_type"))
        if mapping not in ("SYMMETRIC", "ASYMMETRIC"):
            raise PatternDeclined(f"the mapping {mapping} is not supported")
        symmetric, dtype = mapping == "SYMMETRIC", argument(node, "target_dtype")
        lo, hi, eps = argument(node, "quant_min"), argument(node, "quant_max"), argument(node, "eps")
        if eps is None:
            eps = torch.finfo(source.meta["val"].dtype).smallest_normal
        block = [_size(b) for b in argument(node, "block_size")]
        granularity, group = _granularity(shape, block)
    stored = DTYPES.get(FROM_TORCH.get(dtype, ""))
    if stored is None or stored.name not in ("i8", "u8"):
        raise PatternDeclined(f"the codes are {dtype}; dynamic quantisation is to int8 and uint8")
    lo, hi = (stored.lo if lo is None else int(lo)), (stored.hi if hi is None else int(hi))
    if symmetric and stored.name == "u8":
        raise PatternDeclined("a symmetric quantisation to uint8 has a zero point of 128; use int8")
    if symmetric and name == _AFFINE and int((hi + lo + 1) / 2):
        raise PatternDeclined(
            f"a symmetric quantisation to {lo}..{hi} needs a non-zero zero point (the middle of the range)"
        )
    found = {"out_dtype": stored.name, "granularity": granularity, "symmetric": symmetric, "recipe": "torchao",
             "eps": float(eps), "clamp": [lo, hi], "group_size": group}  # fmt: skip
    return {k: v for k, v in found.items() if v is not None}, block


def _granularity(shape: Sequence[torch.SymInt | int], block: Sequence[int]) -> tuple[str, int | None]:
    """The granularity of the scales and the group size, from the size of the blocks."""
    if len(shape) == len(block) and all(b == -1 or same(s, b) for s, b in zip(shape, block, strict=True)):
        return "tensor", None
    if len(shape) != len(block) or any(b != 1 for b in block[:-1]):
        raise PatternDeclined(f"blocks of {list(block)} are neither one token nor a group along the last axis")
    if same(shape[-1], block[-1]) or block[-1] == -1:
        return "token", None
    return "group", int(block[-1])


def _quantises(
    graph: TorchGraph, user: Node, source: Node, scale: Node | None, zero: Node | None, attributes: Keywords
) -> bool:
    """Whether `user` quantises the same tensor with the scale and the zero point chosen from it."""
    try:
        q = quantised(graph, user)
    except PatternDeclined:
        return False
    if q is None or q.source is not source or q.dtype != attributes["out_dtype"]:
        return False
    first = 1 if "per_tensor" in name_of(user) else 2
    given, offset = (*user.args, None)[first : first + 2]
    return [q.lo, q.hi] == attributes["clamp"] and given is scale and _is_chosen(graph, offset, zero, attributes)


def _is_chosen(graph: TorchGraph, offset: torch.fx.Node | None, zero: Node | None, attributes: Keywords) -> bool:
    """Whether a zero point is the chosen one or, if symmetric, 0."""
    while isinstance(offset, Node) and offset.target in (aten._to_copy.default, aten.to.dtype, *VIEWS):
        offset = offset.args[0]
    if zero is not None and offset is zero:
        return True
    known = None if offset is None else graph.constant(offset)
    none = offset is None or (known is not None and not bool(known.any()))
    zeros = isinstance(offset, Node) and offset.target in (aten.zeros.default, aten.zeros_like.default)
    return bool(attributes["symmetric"]) and (none or zeros)
