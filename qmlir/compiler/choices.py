"""Choices: values for the knobs of a target's strategies, in the order in which they are worth trying for a program."""

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

# A choice is not compiled if the cost models estimate more than this many times the default's time.
HOPELESS = 3.0


def flags_of(target: Target, choice: Choice) -> tuple[str, ...]:
    """The flags for IREE that a choice implies.

    Raises:
        UsageError: no strategy of the target declares a knob or a value of the choice.
    """
    flags: dict[str, None] = {}
    for strategy in chosen_strategies(backend_of(target).strategies(target), choice):
        if isinstance(strategy, Tunable):
            flags |= dict.fromkeys(strategy.program_flags(choice))
    return tuple(flags)


def space_of(target: Target, contractions: Iterable[DecisionRow]) -> list[Knob]:
    """The knobs of a program, each once: the strategy that is asked first, if several accept one of its contractions;
    and the knobs of every strategy that may be chosen."""
    rows = list(contractions)
    answers = [a for row in rows for a in row["answers"]]
    accepted = {a["strategy"]: None for a in answers if a["accepted"] or a.get("on_request", False)}
    chosen = {row["chosen"] for row in rows}
    others = [name for name in accepted if name not in chosen]
    knobs: dict[str, Knob] = {}
    if others:
        # "" is the default: the strategies are asked in their usual order.
        knobs[FIRST] = Knob(FIRST, ("", *others))
    for strategy in backend_of(target).strategies(target):
        # stock's knobs are always included: a strategy that forwards to it (im2col) leaves the choice to it.
        if isinstance(strategy, Tunable) and (strategy.name in accepted or strategy.name == "stock"):
            for knob in strategy.space():
                knobs.setdefault(knob.name, knob)
    return list(knobs.values())


def combinations(knobs: list[Knob]) -> list[Choice]:
    """Every choice that differs from the default in at most two knobs, those that differ in fewer knobs first. A choice
    names only the values that differ, so {} is the default."""
    every: list[Choice] = [{}]
    for count in (1, 2):
        for group in itertools.combinations(knobs, count):
            for values in itertools.product(*(k.values[1:] for k in group)):
                every.append({k.name: v for k, v in zip(group, values, strict=True)})
    return every


def ranked(target: Target, knobs: list[Knob], explained: Callable[[Choice], Explanation]) -> list[Choice]:
    """The combinations that make different plans or flags: the default, then the others by increasing estimates of the
    strategies' cost models.

    A choice with the same plans and flags as an earlier one is dropped before it is compiled, and so is one whose
    estimate exceeds `HOPELESS` times the default's. A choice without estimates counts as the default: only IREE can
    judge flags.
    """
    seen: set[str] = set()
    found: list[tuple[float, int, Choice]] = []
    base = 0.0
    for number, choice in enumerate(combinations(knobs)):
        explanation = explained(choice)
        plans = [_plan(row) for row in explanation.contractions]
        flags = flags_of(target, choice)
        if flags and plans and all(plan.get("route") == "kernel" for _, plan, _ in plans):
            continue  # flags affect IREE's code generation, which compiles little of this program
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
    """The chosen strategy of a contraction, its plan, and the cost model's estimate, None if there is none."""
    answer = next(a for a in row["answers"] if a["strategy"] == row["chosen"])
    return row["chosen"], answer["plan"], answer.get("cost")


def best_choice(
    build: Callable[[ir.Context], ir.Module], target: Target, options: Options, database: Database
) -> Choice | None:
    """The best known choice for a program; {} if that is the default, None if the database has no record."""
    explanation = explain_built(build, target, replace(options, pipeline=None, dump_stages=None))
    return database.best(key_of(target, explanation.contractions))


def choice_flags(target: Target | str, choice: Choice | None) -> tuple[str, ...]:
    """The flags for IREE that a choice implies; none for None."""
    if not choice:
        return ()

    return flags_of(resolve(target) if isinstance(target, str) else target, choice)
