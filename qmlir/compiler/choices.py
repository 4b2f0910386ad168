"""Choices: what a target's strategies leave open for a program, in the order in which they are worth trying."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.rows import DecisionRow, Facts
from ..targets import Target, backend_of, resolve
from ..targets.strategy import FIRST, Choice, Knob, Tunable, chosen_strategies
from .explanation import Explanation, explain_built
from .options import Options
from .tuning_database import Database, key_of

if TYPE_CHECKING:
    from ..core.mlir import ir

# A choice is not worth compiling when the model says that it takes so many times as long as the default.
HOPELESS = 3.0


def flags_of(target: Target, choice: Choice) -> tuple[str, ...]:
    """What a choice means to IREE.

    Raises:
        UsageError: a knob or a value that no strategy of the target declares.
    """
    flags: dict[str, None] = {}
    for strategy in chosen_strategies(backend_of(target).strategies(target), choice):
        if isinstance(strategy, Tunable):
            flags |= dict.fromkeys(strategy.program_flags(choice))
    return tuple(flags)


def space_of(target: Target, contractions: Iterable[DecisionRow]) -> list[Knob]:
    """The knobs of a program: which strategy is asked first, where several take one of its contractions; and those of
    every strategy that would then be chosen, each once."""
    rows = list(contractions)
    answers = [a for row in rows for a in row["answers"]]
    accepted = {a["strategy"]: None for a in answers if a["accepted"] or a.get("on_request", False)}
    chosen = {row["chosen"] for row in rows}
    others = [name for name in accepted if name not in chosen]
    knobs: dict[str, Knob] = {}
    if others:
        # "" is the default: nothing is asked before its turn.
        knobs[FIRST] = Knob(FIRST, ("", *others))
    for strategy in backend_of(target).strategies(target):
        # A strategy that hands on to another one (im2col to stock) leaves the choice to it.
        if isinstance(strategy, Tunable) and (strategy.name in accepted or strategy.name == "stock"):
            for knob in strategy.space():
                knobs.setdefault(knob.name, knob)
    return list(knobs.values())


def combinations(knobs: list[Knob]) -> list[Choice]:
    """Every choice that differs from the default in at most two knobs, nearest first; of the default's values only
    the others are named, so that {} is the default."""
    every: list[Choice] = [{}]
    for count in (1, 2):
        for group in itertools.combinations(knobs, count):
            for values in itertools.product(*(k.values[1:] for k in group)):
                every.append({k.name: v for k, v in zip(group, values, strict=True)})
    return every


def ranked(target: Target, knobs: list[Knob], explained: Callable[[Choice], Explanation]) -> list[Choice]:
    """The combinations that make different plans, those first that the strategies' own models call faster.

    A choice that leaves every plan and every flag as another one is dropped before it is compiled, and so is one that
    the model calls hopeless. A choice that no model speaks of counts as the default: flags are for IREE to judge.
    """
    seen: set[str] = set()
    found: list[tuple[float, int, Choice]] = []
    base = 0.0
    for number, choice in enumerate(combinations(knobs)):
        explanation = explained(choice)
        plans = [_plan(row) for row in explanation.contractions]
        flags = flags_of(target, choice)
        if flags and plans and all(plan.get("route") == "kernel" for _, plan, _ in plans):
            continue  # flags speak to IREE's code generation, which has little to do here
        form = json.dumps([flags, [(name, plan) for name, plan, _ in plans]])
        if form in seen or not explanation.ok:
            continue
        seen.add(form)
        costs = [cost for _, _, cost in plans]
        known = bool(costs) and all(c is not None for c in costs)
        cost = sum(c for c in costs if c is not None) if known else base
        base = cost if number == 0 else base
        if number == 0 or not base or cost <= HOPELESS * base:
            found.append((cost, number, choice))
    first, *others = found
    return [first[2], *(choice for _, _, choice in sorted(others, key=lambda f: f[:2]))]


def _plan(row: DecisionRow) -> tuple[str, Facts, float | None]:
    """The chosen strategy of a contraction, its plan and what its model says."""
    answer = next(a for a in row["answers"] if a["strategy"] == row["chosen"])
    return row["chosen"], answer["plan"], answer.get("cost")


def best_choice(
    build: Callable[[ir.Context], ir.Module], target: Target, options: Options, database: Database
) -> Choice | None:
    """The best known choice for a program, {} when that is the default, None when nothing is known."""
    explanation = explain_built(build, target, replace(options, pipeline=None, dump_stages=None))
    return database.best(key_of(target, explanation.contractions))


def choice_flags(target: Target | str, choice: Choice | None) -> tuple[str, ...]:
    """What a choice says to IREE."""
    if not choice:
        return ()

    return flags_of(resolve(target) if isinstance(target, str) else target, choice)
