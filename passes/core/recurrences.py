"""qmlir-recurrences: replace recurrent layers with a kernel of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...core.mlir import ir
from ...core.spelling import location_text
from ...ir.walk import collect, functions
from ...kernels.recurrence import ATTRIBUTE, RecurrenceCall
from ...targets import backend_of, resolve
from ...targets.strategy import Contraction, GroupStrategy, first_accepted
from ..base import Pass, State


@dataclass(frozen=True)
class RecurrencesPass(Pass):
    """Asks the target's kernels about each call of a function that is a recurrent layer. If none accepts, the call
    and the function, which is a loop over the time steps, stay.
    """

    name: ClassVar[str] = "qmlir-recurrences"
    summary: ClassVar[str] = "compute recurrent layers (LSTM, GRU, RNN) by a kernel of the target"
    target: str = "cpu"

    def run(self, module: ir.Module, state: State) -> None:
        layers = {f.attributes["sym_name"].value: f for f in functions(module) if ATTRIBUTE in f.attributes}
        if not layers:
            return
        target = resolve(self.target)
        strategies = backend_of(target).recurrence_strategies(target)
        unused = set(layers)
        for op in collect(module, "func.call", where=lambda op: op.attributes["callee"].value in layers):
            callee = op.attributes["callee"].value
            if not _taken(RecurrenceCall.of(op, layers[callee]), strategies, state):
                unused.discard(callee)
        for name, function in layers.items():
            if name in unused:
                function.erase()
                continue
            for attribute in (ATTRIBUTE, "no_inline"):
                if attribute in function.attributes:
                    del function.attributes[attribute]


def _taken(call: RecurrenceCall, strategies: tuple[GroupStrategy[RecurrenceCall], ...], state: State) -> bool:
    """Whether a kernel replaces the call."""
    op, layer = call.op, call.layer
    about = Contraction(
        layer.cell, (layer.directions,), call.batch, layer.gates * layer.hidden, layer.hidden, "f32", "f32", "f32",
        location=location_text(op.location),
    )  # fmt: skip
    decision, plan = first_accepted(about, strategies, call)
    if plan is None:
        return False
    state.decisions.append(decision)
    with op.context, op.location:
        plan.apply(op)
    return True
