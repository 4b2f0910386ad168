"""Fuse layers of LSTM, GRU and RNN in an FX graph: each layer becomes one product with the inputs of all steps, and one
node that is raised to a loop over the steps. torch decomposes a layer into one product per step."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch.fx import Node

from ...kernels.recurrence import GATES, GRU, LSTM, RNN, Activation, Recurrence
from ...spec import TensorSpec
from ..raising import Raising, Tensor, register_raising
from ..recurrence import recurrent
from .custom_ops import NAMESPACE, define
from .graph import TorchGraph, argument, aten, dtype_of, retyped, shape_of

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx.node import Argument, Target

# By torch's operator: the cell and the activations of its gates. Operators on packed sequences are not fused.
LAYERS: dict[OpOverload, tuple[str, tuple[str, ...]]] = {
    aten.lstm.input: (LSTM, ("sigmoid", "tanh", "tanh")),
    aten.gru.input: (GRU, ("sigmoid", "tanh")),
    aten.rnn_tanh.input: (RNN, ("tanh",)),
    aten.rnn_relu.input: (RNN, ("relu",)),
}  # fmt: skip
# For each gate of `kernels/recurrence.py` (i o f g; z r n), its index among torch's gates (i f g o; r z n).
_GATE_ORDER = {LSTM: (0, 3, 1, 2), GRU: (1, 0, 2), RNN: (0,)}
_SCHEMA = (
    "recurrence(Tensor inputs, Tensor weights, Tensor h, Tensor? c, Tensor? bias, str cell, str[] activations) "
    "-> (Tensor, Tensor, Tensor)"
)


def fuse_recurrent(graph: TorchGraph) -> None:
    """Rewrite `graph` in place: fuse every f32 recurrent layer with constant weights and without dropout."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in LAYERS:
            _fuse(graph, node)
    graph.clean()


def _fuse(graph: TorchGraph, node: Node) -> None:
    cell, activations = LAYERS[node.target]
    x, given = node.args[:2]
    states = list(given) if cell == LSTM else [given]
    layers, directions = int(argument(node, "num_layers")), 1 + bool(argument(node, "bidirectional"))
    biased, batch_first = bool(argument(node, "has_biases")), bool(argument(node, "batch_first"))
    parameters = [graph.constant(p) for p in argument(node, "params")]
    if argument(node, "train") and argument(node, "dropout"):
        return
    if any(dtype_of(t) != torch.float32 for t in (x, *states)) or any(
        p is None or p.dtype != torch.float32 for p in parameters
    ):
        return
    each = 4 if biased else 2
    if len(parameters) != each * layers * directions:
        return  # an LSTM with projected states
    made = _Builder(graph, node)
    if batch_first:
        x = made.exchanged(x)
    ends: list[list[torch.fx.Node]] = [[] for _ in states]
    for i in range(layers):
        first = each * directions * i
        weights = _Weights(cell, [parameters[first + each * d : first + each * (d + 1)] for d in range(directions)])
        starts = [made.part(s, directions * i, directions) for s in states]
        x, found = made.layer(x, weights, starts, activations)
        for end, state in zip(ends, found, strict=True):
            end.append(state)
    results = [made.exchanged(x) if batch_first else x, *(made.joined(end) for end in ends)]
    for user in list(node.users):
        assert user.target is operator.getitem
        graph.replace(user, results[int(str(user.args[1]))])


class _Weights:
    """The weights of one layer, from torch's tensors of each direction; gates are in the order of
    `kernels/recurrence.py`.

    `inputs` [D * G * H, I] and `input_bias` [D * G * H] belong to the product with all steps, `states` [D, G * H, H] to
    the product within a step. `bias` [D, H] is added within a step to a GRU's last gate, before the reset gate
    multiplies it."""

    def __init__(self, cell: str, given: Sequence[Sequence[torch.Tensor]]) -> None:
        self.cell = cell
        self.inputs = torch.cat([self._ordered(d[0]) for d in given])
        self.states = torch.stack([self._ordered(d[1]) for d in given])
        size = self.states.shape[-1]
        self.input_bias = self.bias = None
        if len(given[0]) > 2:
            late = 2 * size if cell == GRU else self.states.shape[1]
            pairs = [(self._ordered(d[2]), self._ordered(d[3])) for d in given]
            self.input_bias = torch.cat([torch.cat([a[:late] + b[:late], a[late:]]) for a, b in pairs])
            self.bias = torch.stack([b[late:] for _, b in pairs])
        if cell != GRU:
            self.bias = None
        elif self.bias is None:
            self.bias = torch.zeros(len(given), size)

    def _ordered(self, gates: torch.Tensor) -> torch.Tensor:
        parts = gates.detach().chunk(GATES[self.cell])
        return torch.cat([parts[i] for i in _GATE_ORDER[self.cell]])


class _Builder:
    """Creates nodes before `node`, the call of the layers."""

    def __init__(self, graph: TorchGraph, node: Node) -> None:
        self.graph, self.node = graph, node

    def layer(
        self, x: torch.fx.Node, weights: _Weights, states: Sequence[torch.fx.Node], activations: Sequence[str]
    ) -> tuple[torch.fx.Node, list[torch.fx.Node]]:
        """One layer of `x` [T, B, I]: its output [T, B, D * H], and its last states [D, B, H]."""
        steps, batch, _ = shape_of(x)
        directions, size = weights.states.shape[0], weights.states.shape[-1]
        operands = [x, self._constant(weights.inputs)]
        if weights.input_bias is not None:
            operands.append(self._constant(weights.input_bias))
        inputs = self._call(aten.linear.default, operands, (steps, batch, weights.inputs.shape[0]))
        bias = None if weights.bias is None else self._constant(weights.bias)
        h, c = states if weights.cell == LSTM else (*states, None)
        like = self.node.meta["val"][0]
        shapes = ((steps, directions, batch, size), *[(directions, batch, size)] * 2)
        both = self.graph.call(
            self.node, torch.ops.qmlir.recurrence.default,
            (inputs, self._constant(weights.states), h, c, bias, weights.cell, list(activations)), {},
            tuple(retyped(like, torch.float32, shape) for shape in shapes),
        )  # fmt: skip
        y, *last = (self._call(operator.getitem, [both, i], shape) for i, shape in enumerate(shapes))
        moved = self._call(aten.permute.default, [y, [0, 2, 1, 3]], (steps, batch, directions, size))
        out = self._call(aten.flatten.using_ints, [moved, 2, 3], (steps, batch, directions * size))
        return out, last[: len(states)]

    def exchanged(self, x: torch.fx.Node) -> torch.fx.Node:
        """Transpose the first two axes."""
        a, b, *rest = shape_of(x)
        return self._call(aten.transpose.int, [x, 0, 1], (b, a, *rest))

    def part(self, x: torch.fx.Node, start: int, count: int) -> torch.fx.Node:
        """`count` elements of the first axis from `start`."""
        whole, *rest = shape_of(x)
        if whole == count:
            return x
        return self._call(aten.slice.Tensor, [x, 0, start, start + count], (count, *rest))

    def joined(self, parts: Sequence[torch.fx.Node]) -> torch.fx.Node:
        """Concatenate along the first axis."""
        if len(parts) == 1:
            return parts[0]
        whole = sum(int(shape_of(p)[0]) for p in parts)
        return self._call(aten.cat.default, [list(parts), 0], (whole, *shape_of(parts[0])[1:]))

    def _constant(self, value: torch.Tensor) -> Node:
        return self.graph.new_constant(value, self.node)

    def _call(self, target: Target, args: Sequence[Argument], shape: Sequence[torch.SymInt | int]) -> Node:
        val = retyped(self.node.meta["val"][0], torch.float32, shape)
        return self.graph.call(self.node, target, args, {}, val)


# ------------------------------------------------------------------------------------------------- the operator


def _fake(
    inputs: torch.Tensor, weights: torch.Tensor, h: torch.Tensor, c: torch.Tensor | None, bias: torch.Tensor | None,
    cell: str, activations: Sequence[str],
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    steps, batch, _ = inputs.shape
    directions, _, size = weights.shape
    return (inputs.new_empty([steps, directions, batch, size]), *(h.new_empty(h.shape) for _ in range(2)))


def _raise(op: Raising) -> list[Tensor]:
    directions, _, hidden = (int(n or 0) for n in op.operand(1).shape)
    cell, names = str(op.attributes["cell"]), cast("Sequence[str]", op.attributes["activations"])
    activations = tuple(Activation(name) for name in names)
    backward = (False, True)[:directions]
    layer = Recurrence(cell, hidden, backward, (activations,) * directions, late_reset=cell == GRU)
    operands = {"inputs": op.operand(0), "weights": op.operand(1), "h": op.operand(2)}
    operands |= {name: t for name, t in (("c", op.optional(3)), ("bias", op.optional(4))) if t is not None}
    steps, batch, _ = op.operand(0).shape
    with op.location:
        y, *states = recurrent(layer, {name: t.value for name, t in operands.items()})
    state = TensorSpec((directions, batch, hidden), "f32")
    whole = Tensor(TensorSpec((steps, directions, batch, hidden), "f32"), y)
    return [whole, Tensor(state, states[0]), Tensor(state, states[-1])]  # the third is used only for an LSTM


define(_SCHEMA, _fake)
register_raising(f"torch.{NAMESPACE}.recurrence", _raise)
