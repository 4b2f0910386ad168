"""qmlir-select: choose for every contraction how the target compiles it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ...core.rows import Facts
from ...core.spelling import did_you_mean
from ...errors import Diagnostic, UsageError
from ...ir.facts import MAGNITUDES
from ...ir.resources import kept_resources
from ...targets import Target, backend_of, resolve
from ...targets.strategy import (
    Decision,
    Strategy,
    answer_text,
    chosen_strategies,
    current_choice,
    current_name,
    decide,
    parse_choice,
    preferred,
)
from ..base import Pass, State, error_at, fail
from .contractions import find_contractions

if TYPE_CHECKING:
    from ...core.mlir import ir


@dataclass(frozen=True)
class SelectPass(Pass):
    """Asks the target's strategies about each contraction, and applies the plan of the first that accepts.

    Also sets `hal.device.targets` of the module, if the target has a description of its own, so that the result can be
    compiled without flags for the device.
    """

    name: ClassVar[str] = "qmlir-select"
    summary: ClassVar[str] = "choose a strategy of the target for every contraction"

    target: str = "cpu"
    prefer: str = ""  # the name of a strategy that is asked before the others
    choice: str = ""  # values of the strategies' knobs, `name:value|name:value`

    def run(self, module: ir.Module, state: State) -> None:
        target = resolve(self.target)
        strategies = chosen_strategies(
            _preferred(target, current_name(self.prefer)), current_choice(parse_choice(self.choice))
        )
        failures: list[Diagnostic] = []
        with kept_resources():
            self._choose(module, state, target, strategies, failures)
        fail(self.name, failures)
        target.attach(module)

    def _choose(
        self,
        module: ir.Module,
        state: State,
        target: Target,
        strategies: Sequence[Strategy],
        failures: list[Diagnostic],
    ) -> None:
        """Apply a plan to every contraction; those that no strategy takes are added to `failures`."""
        # All are found before any is changed: a plan may replace its op, and the ops it builds are not asked about.
        for contraction in find_contractions(module):
            if 0 in contraction.sizes:
                continue  # nothing to multiply: only a fill is left
            decision, plan = decide(contraction, strategies)
            # Without the op, which may be erased soon; a report must not keep the context alive either.
            state.decisions.append(replace(decision, contraction=replace(contraction, op=None)))
            op = contraction.operation
            for name in MAGNITUDES:
                if name in op.attributes:
                    del op.attributes[name]
            if plan is None:
                failures.append(error_at(op, _refusal(target.spelling, decision)))
                continue
            with op.context, op.location:
                plan.apply(op)
            if slow := _slow(plan.describe()):
                text = f"{target.spelling} compiles this {contraction.kind} to slow code: {slow}"
                state.notes.append(Diagnostic(text, contraction.location, "warning"))


def _preferred(target: Target, name: str) -> Sequence[Strategy]:
    """The target's strategies, the one called `name` first."""
    strategies = backend_of(target).strategies(target)
    if name and name not in (names := [s.name for s in strategies]):
        raise UsageError(f"{target.spelling} has no strategy {name!r}{did_you_mean(name, names)}")
    return preferred(strategies, name) if name else strategies


def _slow(facts: Facts) -> str:
    """Why a plan is expected to be slow, from any level of its description; "" if it is not."""
    if "slow" in facts:
        return str(facts["slow"])
    return next((s for v in facts.values() if isinstance(v, Mapping) and (s := _slow(v))), "")


def _refusal(target: str, decision: Decision) -> str:
    """The message of a refusal: every strategy's reason, and what would make it fit."""
    c = decision.contraction
    lines = [f"no strategy of {target} compiles this {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}:"]
    lines += [f"  {answer_text(row)}" for row in decision.summary()["answers"]]
    return "\n".join(lines)
