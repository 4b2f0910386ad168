"""Replace an If whose condition follows from constants and static sizes by the branch that is taken."""

from __future__ import annotations

from collections.abc import Mapping

import onnx


def branch(node: onnx.NodeProto, label: str, taken: bool) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The nodes and constants of a branch: names that it defines get the prefix `label`, and its results have the names
    of the node's results."""
    wanted = "then_branch" if taken else "else_branch"
    graph = next((a.g for a in node.attribute if a.name == wanted), onnx.GraphProto())
    own = [t.name for t in graph.initializer] + [name for n in graph.node for name in n.output if name]
    names = {name: f"{label}/{name}" for name in own}
    constants = [_copied(t) for t in graph.initializer]
    for t in constants:
        t.name = names[t.name]
    nodes = [_renamed(n, names) for n in graph.node]
    nodes += [
        onnx.helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer], name=label)
        for inner, outer in zip(graph.output, node.output, strict=False)
        if outer
    ]
    return nodes, constants


def _copied(t: onnx.TensorProto) -> onnx.TensorProto:
    made = onnx.TensorProto()
    made.CopyFrom(t)
    return made


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of `node` with tensors renamed by `names`, also in the graphs inside of it."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(n, n) for n in node.input]
    made.output[:] = [names.get(n, n) for n in node.output]
    for a in made.attribute:
        for graph in [a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs:
            for i, inner in enumerate(graph.node):
                graph.node[i].CopyFrom(_renamed(inner, names))
            for out in graph.output:
                out.name = names.get(out.name, out.name)
    return made
