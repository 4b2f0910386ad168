"""Replace `torch.cond` by both of its branches and a select of their results: compiled programs have no control flow,
and branches have no side effects."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule, Node

from ...errors import Diagnostic, FrontEndError
from .graph import aten, is_tensor, where

if TYPE_CHECKING:
    from torch.fx.node import Argument, Target


def inline_conditions(gm: GraphModule) -> None:
    """Replace every `torch.cond` of a graph. Raises FrontEndError if a condition or result is not a tensor."""
    while found := [n for n in gm.graph.nodes if n.target is torch.ops.higher_order.cond]:  # branches may nest others
        for node in found:
            _inline_one(gm, node)
    gm.graph.lint()


def _inline_one(gm: GraphModule, node: Node) -> None:
    condition, yes, no, operands = node.args
    if not is_tensor(condition):
        raise FrontEndError([Diagnostic("the condition of torch.cond depends only on sizes, not on a "
                                        "tensor; export one program for each case", where(node))])  # fmt: skip
    with gm.graph.inserting_before(node):
        condition = _call(gm, aten.reshape.default, (condition, []), condition.meta["val"].new_empty([]))
        branches = [_inline_branch(gm, branch, operands) for branch in (yes, no)]
        if not all(is_tensor(a) for a in branches[0]):
            raise FrontEndError(
                [Diagnostic("a branch of torch.cond returns a value that is not a tensor; return tensors", where(node))]
            )
        chosen = [_call(gm, aten.where.self, (condition, a, b), a.meta["val"]) for a, b in zip(*branches, strict=True)]
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(chosen[int(str(user.args[1]))])
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)
    for branch in (yes, no):
        if not branch.users:
            gm.graph.erase_node(branch)


def _inline_branch(gm: GraphModule, branch: Node, operands: Sequence[Node]) -> list[Node]:
    """Copy the nodes of a branch to the insertion point; return its results."""
    inner = getattr(gm, str(branch.target))
    known = dict(zip((n for n in inner.graph.nodes if n.op == "placeholder"), operands, strict=True))
    for n in inner.graph.nodes:
        if n.op == "output":
            return list(torch.fx.map_arg(n.args[0], known.__getitem__))
        if n.op == "get_attr":
            name = f"{branch.target}_{n.target}".replace(".", "_")
            setattr(gm, name, getattr(inner, str(n.target)))
            known[n] = gm.graph.get_attr(name)
            known[n].meta = dict(n.meta)
        elif n.op != "placeholder":
            known[n] = gm.graph.node_copy(n, known.__getitem__)
    return []


def _call(gm: GraphModule, target: Target, args: tuple[Argument, ...], value: torch.Tensor) -> Node:
    made = gm.graph.call_function(target, args)
    made.meta["val"] = value
    return made
