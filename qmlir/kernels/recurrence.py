"""What a recurrent layer computes, independent of how: cells of LSTM, GRU or RNN along a sequence.

In a program a layer is a call of a private function that computes it on every target (`frontends/recurrence.py`). The
function's attribute describes the layer, so that a kernel can replace it: both use the cell that is defined here.

Operands: inputs `[T, B, D * G * H]`, the input's contribution to each gate of each direction at each step; weights
`[D, G * H, H]`; states `[D, B, H]`; and, if the layer has them, cells `[D, B, H]`, biases `[D, H]`, peepholes
`[D, 3 * H]`, lengths `[B]`. Results: `[T, D, B, H]`, the last states, and the last cells.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..core.mlir import arith, ir, math

if TYPE_CHECKING:
    from ..core.mlir import OpLike

ATTRIBUTE = "qmlir.recurrence"
LSTM, GRU, RNN = "lstm", "gru", "rnn"
GATES = {LSTM: 4, GRU: 3, RNN: 1}  # in ONNX's order: i o f c; z r h

ReadState: TypeAlias = "Callable[[str], ir.Value]"


@dataclass(frozen=True)
class Activation:
    """An activation function by its ONNX name in lower case."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: ir.Value) -> ir.Value:
        return ACTIVATIONS[self.name](x, self.alpha, self.beta)


@dataclass(frozen=True)
class Phase:
    """Gates that are computed together: their numbers, the vector that their weights are multiplied by, the tensors
    that an element reads in addition to the gates' sums, and those that it writes."""

    gates: tuple[int, ...]
    source: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Recurrence:
    """A layer. `reverse` and `activations` have one entry per direction.

    Attributes:
        late_reset: the reset gate of a GRU multiplies the product, which has a separate bias, instead of the state.
        coupled: an LSTM's forget gate is one minus its input gate.
        clip: inputs of the gates' activations are clamped to `[-clip, clip]`; 0 for no clamp.
        peepholes, lengths: whether the layer has such operands.
    """

    cell: str
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    late_reset: bool = False
    coupled: bool = False
    clip: float = 0.0
    peepholes: bool = False
    lengths: bool = False

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def directions(self) -> int:
        return len(self.reverse)

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands' names, in order."""
        there = {"c": self.cell == LSTM, "bias": self.late_reset, "peepholes": self.peepholes, "lengths": self.lengths}
        return ("inputs", "weights", "h", *(name for name, present in there.items() if present))

    @property
    def phases(self) -> tuple[Phase, ...]:
        if self.cell == LSTM:
            peepholes = ("p0", "p1", "p2") if self.peepholes else ()
            return (Phase((0, 1, 2, 3), "h", ("c", *peepholes), ("c", "h")),)
        if self.cell == RNN:
            return (Phase((0,), "h", (), ("h",)),)
        if self.late_reset:
            return (Phase((0, 1, 2), "h", ("x2", "h"), ("h",)),)
        return Phase((0, 1), "h", ("h",), ("update", "reset")), Phase((2,), "reset", ("update", "h"), ("h",))

    def starts_from(self, gate: int) -> str:
        """The operand that is added to a gate's product: the inputs, or a separate bias."""
        return "bias" if self.late_reset and gate == 2 else "inputs"

    def computed(
        self, direction: int, phase: Phase, sums: Sequence[ir.Value], read: ReadState
    ) -> Mapping[str, ir.Value]:
        """The values that a phase writes, by name, from its gates' sums; all are scalars or all are vectors."""
        f, *others = self.activations[direction]
        if self.cell == RNN:
            return {"h": f(self._clipped(sums[0]))}
        if self.cell == LSTM:
            return self._lstm(direction, sums, read)
        (g,) = others
        if phase.gates == (0, 1):
            update, reset = (f(self._clipped(s)) for s in sums)
            return {"update": update, "reset": arith.mulf(reset, read("h"))}
        if self.late_reset:
            update, reset = (f(self._clipped(s)) for s in sums[:2])
            candidate = arith.addf(read("x2"), arith.mulf(reset, sums[2]))
        else:
            update, candidate = read("update"), sums[0]
        new, old = g(self._clipped(candidate)), read("h")
        return {"h": arith.addf(arith.mulf(arith.subf(_like(new, 1.0), update), new), arith.mulf(update, old))}

    def _lstm(self, direction: int, sums: Sequence[ir.Value], read: ReadState) -> Mapping[str, ir.Value]:
        f, g, h = self.activations[direction]
        cell = read("c")

        def gate(number: int, state: ir.Value) -> ir.Value:
            total = sums[number]
            if self.peepholes:
                total = arith.addf(total, arith.mulf(read(f"p{number}"), state))
            return f(self._clipped(total))

        enter = gate(0, cell)
        keep = arith.subf(_like(enter, 1.0), enter) if self.coupled else gate(2, cell)
        new = arith.addf(arith.mulf(keep, cell), arith.mulf(enter, g(self._clipped(sums[3]))))
        return {"c": new, "h": arith.mulf(gate(1, new), h(new))}

    def _clipped(self, x: ir.Value) -> ir.Value:
        if not self.clip:
            return x
        return arith.maximumf(arith.minimumf(x, _like(x, self.clip)), _like(x, -self.clip))

    # ---- as an attribute

    def attribute(self) -> ir.Attribute:
        return ir.StringAttr.get(json.dumps(asdict(self)))

    @classmethod
    def of(cls, attribute: ir.Attribute) -> Recurrence:
        fields = json.loads(ir.StringAttr(attribute).value)
        fields["reverse"] = tuple(fields["reverse"])
        fields["activations"] = tuple(tuple(Activation(**a) for a in one) for one in fields["activations"])
        return cls(**fields)


@dataclass(frozen=True)
class RecurrenceCall:
    """A call of a function that is a layer, and the sizes of its inputs, None if dynamic."""

    op: OpLike
    layer: Recurrence
    steps: int | None
    batch: int | None

    @classmethod
    def of(cls, op: OpLike, function: OpLike) -> RecurrenceCall:
        kind = ir.RankedTensorType(op.operands[0].type)
        steps, batch = (None if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(2))
        return cls(op, Recurrence.of(function.attributes[ATTRIBUTE]), steps, batch)


# ---- functions of scalars or vectors


def _like(x: ir.Value, value: float) -> ir.Value:
    t = x.type
    if isinstance(t, ir.VectorType):
        return arith.constant(t, ir.DenseElementsAttr.get_splat(t, ir.FloatAttr.get(t.element_type, value)))
    return arith.constant(t, value)


def _sigmoid(x: ir.Value) -> ir.Value:
    one = _like(x, 1.0)
    return arith.divf(one, arith.addf(one, math.exp(arith.negf(x))))


def _affine(x: ir.Value, alpha: float, beta: float) -> ir.Value:
    return arith.addf(arith.mulf(_like(x, alpha), x), _like(x, beta))


def _where(x: ir.Value, above: float, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, x, _like(x, above)), then, otherwise)


def _between(x: ir.Value, low: float, high: float) -> ir.Value:
    return arith.minimumf(arith.maximumf(x, _like(x, low)), _like(x, high))


def _elu(x: ir.Value, alpha: float) -> ir.Value:
    below = arith.mulf(_like(x, alpha), arith.subf(math.exp(x), _like(x, 1.0)))
    return _where(x, 0.0, x, below)


def _softplus(x: ir.Value) -> ir.Value:
    """`log(1 + exp(x))`, also if `exp(x)` overflows f32."""
    rest = math.log1p(math.exp(arith.negf(math.absf(x))))
    return arith.addf(arith.maximumf(x, _like(x, 0.0)), rest)


ACTIVATIONS: dict[str, Callable[[ir.Value, float, float], ir.Value]] = {
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: math.tanh(x),
    "relu": lambda x, a, b: arith.maximumf(x, _like(x, 0.0)),
    "affine": _affine,
    "leakyrelu": lambda x, a, b: _where(x, 0.0, x, arith.mulf(_like(x, a), x)),
    "thresholdedrelu": lambda x, a, b: _where(x, a, x, _like(x, 0.0)),
    "scaledtanh": lambda x, a, b: arith.mulf(_like(x, a), math.tanh(arith.mulf(_like(x, b), x))),
    "hardsigmoid": lambda x, a, b: _between(_affine(x, a, b), 0.0, 1.0),
    "elu": lambda x, a, b: _elu(x, a),
    "softsign": lambda x, a, b: arith.divf(x, arith.addf(_like(x, 1.0), math.absf(x))),
    "softplus": lambda x, a, b: _softplus(x),
}
