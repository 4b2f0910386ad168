"""The strategy protocol: how a target says how a contraction is to be compiled.

A pass (`qmlir-select`) finds the contractions of a module in linalg form, describes each as a
`Contraction`, and asks the target's strategies in order. Each answers `Accept(plan, estimate)` or
`Decline(reason, remedy)`; the first accepted plan is applied. Every answer is kept (`Decision`), so that
errors and `explain` say what was considered and why, in the same words (`answer_text`).

Targets know this module and the dialect, never the passes; passes know targets only through this module.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

from ..core.rows import AnswerRow, DecisionRow, Fact as Fact, Facts as Facts
from ..core.spelling import did_you_mean
from ..errors import Diagnostic, PassError, UsageError, caller
from .cost import Cost

if TYPE_CHECKING:
    from ..core.mlir import OpLike


# Values of knobs by their names, as the tuner chooses them.
Choice: TypeAlias = "Mapping[str, int | str]"


@dataclass(frozen=True)
class Contraction:
    """One linalg contraction or convolution, described without its IR.

    Sizes are `None` where dynamic. For a convolution, M is N*OH*OW, N is the filters per group, K is
    KH*KW*C per group and `batch` holds the groups.
    """

    kind: str  # "matmul" | "conv2d" | "depthwise_conv2d" | "attention" (M queries, N keys, heads of K)
    # | "lstm" | "gru" | "rnn" (a step: M rows of K units, N of all gates, directions)
    batch: tuple[int | None, ...]
    m: int | None
    n: int | None
    k: int | None
    lhs: str  # element type, MLIR spelling: "i8", "f16", ...
    rhs: str
    acc: str
    # Iteration dimensions in the op's own order, as letters: "b" batch, "m", "n", "k" (reduction).
    roles: tuple[str, ...] = ()
    sizes: tuple[int | None, ...] = ()  # of the iteration dimensions, same order
    rhs_constant: bool = False
    # Largest |code| that each integer side can hold (127 for s4 stored in s8 is 8): bounds exactness of
    # routes through floating point.
    lhs_magnitude: int = 128
    rhs_magnitude: int = 128
    location: str = ""
    op: OpLike | None = field(default=None, compare=False, repr=False)

    @property
    def operation(self) -> OpLike:
        """The op of a contraction of a program."""
        assert self.op is not None
        return self.op


@dataclass(frozen=True)
class Estimate:
    """What is known of a plan's time.

    Attributes:
        seconds: a lower bound from shapes where the target has figures, else None.
        note: what the bound is of.
        cost: by the cost model (`cost.py`), of plans whose kernels it knows.
        runner_up: what the strategy would have chosen next.
    """

    seconds: float | None
    note: str = ""
    cost: Cost | None = None
    runner_up: RunnerUp | None = None


@dataclass(frozen=True)
class RunnerUp:
    """What a strategy would have chosen next, and its time."""

    name: str
    cost: Cost


class Plan(Protocol):
    """What an accepting strategy will do."""

    def apply(self, op: OpLike) -> None:
        """Change the IR of the contraction `op` (attach `compilation_info`, or rewrite it)."""

    def describe(self) -> Facts:
        """JSON-able facts for the manifest: tile sizes, mma kind, ..."""


@dataclass(frozen=True)
class Accept:
    plan: Plan
    estimate: Estimate


@dataclass(frozen=True)
class Decline:
    reason: str
    remedy: str = ""  # what would make it fit
    on_request: bool = False  # it accepts when it is asked for by its name


_Taken = TypeVar("_Taken")


def confirmed(answer: _Taken | Decline, strategy: str, contraction: Contraction) -> _Taken:
    """What a strategy that accepted a contraction answers to the form that its plan has brought the contraction into.

    Raises:
        PassError: it declines that form.
    """
    if not isinstance(answer, Decline):
        return answer
    c = contraction
    remedy = f" ({answer.remedy})" if answer.remedy else ""
    raise PassError([Diagnostic(
        f"the strategy {strategy} took this {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}, and does not take what its own "
        f"plan made of it: {answer.reason}{remedy}; another strategy may compile it: choice={{'strategy': 'stock'}}",
        c.location,
    )])  # fmt: skip


class Strategy(Protocol):
    @property
    def name(self) -> str: ...

    def consider(self, contraction: Contraction) -> Accept | Decline: ...


_Group = TypeVar("_Group")
_Read = TypeVar("_Read", contravariant=True)


class GroupStrategy(Protocol[_Read]):
    """A kernel for a group of operations that is not a contraction: an attention, rows, codes."""

    @property
    def name(self) -> str: ...

    def consider(self, group: _Read, /) -> Accept | Decline: ...


def first_plan(strategies: Iterable[GroupStrategy[_Group]], group: _Group) -> Plan | None:
    """The plan of the first strategy that accepts a group; None where none does."""
    answers = (strategy.consider(group) for strategy in strategies)
    return next((answer.plan for answer in answers if isinstance(answer, Accept)), None)


@dataclass(frozen=True)
class Knob:
    """A choice that a strategy leaves open: JSON-able values, the first of which is taken without tuning."""

    name: str
    values: tuple[int | str, ...]


@runtime_checkable
class Tunable(Protocol):
    """A strategy that declares what `qmlir tune` may try. Optional: a strategy without these methods has nothing to
    choose."""

    @property
    def name(self) -> str: ...

    def space(self) -> tuple[Knob, ...]:
        """The knobs, for any contraction that the strategy accepts."""

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        """What a choice means to the compilation of the whole program, as flags for IREE."""

    def choosing(self, choice: Choice) -> Strategy:
        """The strategy with what the choice says of its own plans; itself when that is nothing."""


@runtime_checkable
class OnRequest(Protocol):
    """A strategy that accepts more when it is asked for by its name: one that departs from the semantics in a way that
    is documented accepts nothing before; one that another is faster than accepts the rest. Optional."""

    @property
    def name(self) -> str: ...

    def requested(self) -> Strategy:
        """The same strategy, asked for."""


def preferred(strategies: Sequence[Strategy], name: str) -> list[Strategy]:
    """The strategies, the one called `name` first, and asked for."""
    made = [s.requested() if s.name == name and isinstance(s, OnRequest) else s for s in strategies]
    return sorted(made, key=lambda s: s.name != name)


FIRST = "strategy"  # the knob that every target has: which strategy is asked before the others
RENAMED = {"by-rows": "multi-version-m"}  # names that strategies had before


def saved_choice(choice: Choice) -> dict[str, int | str]:
    """A choice of a file, such as a tuning database, which may name a strategy as it was called before."""
    return {name: RENAMED.get(str(value), value) if name == FIRST else value for name, value in choice.items()}


def current_name(strategy: str) -> str:
    """The name of today of a strategy that a user names; an old one is warned of."""
    if strategy not in RENAMED:
        return strategy
    new = RENAMED[strategy]
    warnings.warn(f"strategy {strategy!r} is deprecated: use {new!r}", DeprecationWarning, stacklevel=caller())
    return new


def current_choice(choice: Choice) -> dict[str, int | str]:
    """A choice of a user by the names of today; an old one is warned of."""
    return {name: current_name(str(value)) if name == FIRST else value for name, value in choice.items()}


def chosen_strategies(strategies: Sequence[Strategy], choice: Choice) -> list[Strategy]:
    """The strategies with a choice made; the one that it names under `strategy` first.

    Raises:
        UsageError: a knob, a value or a strategy that there is not.
    """
    knobs: dict[str, tuple[int | str, ...]] = {FIRST: tuple(s.name for s in strategies)}
    for strategy in strategies:
        if isinstance(strategy, Tunable):
            for k in strategy.space():  # strategies may have values of their own
                knobs[k.name] = tuple(dict.fromkeys((*knobs.get(k.name, ()), *k.values)))
    for name, value in choice.items():
        if value not in knobs.get(name, ()):
            near = did_you_mean(str(value), map(str, knobs[name])) if name in knobs else did_you_mean(name, knobs)
            raise UsageError(f"there is no choice {name} = {value!r}{near}")
    made = [s.choosing(choice) if isinstance(s, Tunable) else s for s in strategies]
    return preferred(made, str(choice[FIRST])) if FIRST in choice else made


def choice_text(choice: Choice) -> str:
    """A choice as an option of `qmlir-select`: `chunk_rows:48|strategy:stock`."""
    return "|".join(f"{name}:{value}" for name, value in sorted(choice.items()))


def parse_choice(text: str) -> dict[str, int | str]:
    """The choice of a text; numbers are integers.

    Raises:
        UsageError: for a part that is not a `name:value`.
    """
    made: dict[str, int | str] = {}
    for part in filter(None, text.split("|")):
        name, colon, value = part.partition(":")
        if not (colon and name and value):
            raise UsageError(f"cannot read the choice {part!r}: write name:value|name:value")
        made[name] = int(value) if value.isdigit() else value
    return made


@dataclass(frozen=True)
class Decision:
    """The answers of all strategies for one contraction; `chosen` is empty when all declined."""

    contraction: Contraction
    answers: tuple[tuple[str, Accept | Decline], ...]
    chosen: str

    def summary(self) -> DecisionRow:
        """JSON-able, for the manifest and for `explain`."""
        c = self.contraction
        rows: list[AnswerRow] = []
        for name, answer in self.answers:
            if isinstance(answer, Accept):
                estimate = answer.estimate
                row: AnswerRow = {
                    "strategy": name,
                    "accepted": True,
                    "plan": dict(answer.plan.describe()),
                    "seconds": estimate.seconds,
                    "note": estimate.note,
                }
                if estimate.cost is not None:
                    row["cost"], row["bound"] = estimate.cost.seconds, estimate.cost.bound
                    row["assumed"] = list(estimate.cost.assumed)
                if estimate.runner_up is not None:
                    row["runner_up"] = (estimate.runner_up.name, estimate.runner_up.cost.seconds)
                rows.append(row)
            else:
                rows.append({"strategy": name, "accepted": False, "reason": answer.reason, "remedy": answer.remedy})
                if answer.on_request:
                    rows[-1]["on_request"] = True
        return {
            "kind": c.kind,
            "batch": list(c.batch),
            "m": c.m,
            "n": c.n,
            "k": c.k,
            "lhs": c.lhs,
            "rhs": c.rhs,
            "acc": c.acc,
            "location": c.location,
            "chosen": self.chosen,
            "answers": rows,
        }


def facts_text(facts: Facts) -> str:
    """The description of a plan in words: `route compilation_info, workgroup 16 x 16 x 128, padded`."""
    parts = []
    for key, value in facts.items():
        name = key.replace("_", " ")
        if key == "slow":
            parts.append(f"slow: {value}")
        elif isinstance(value, Mapping):
            parts.append(f"{name}: {facts_text(value)}")
        elif isinstance(value, bool):
            parts += [name] if value else []
        elif isinstance(value, (list, tuple)):
            parts.append(f"{name} {' x '.join(map(str, value))}")
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def seconds_text(seconds: float) -> str:
    """`12.3 us`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def shape_text(row: DecisionRow) -> str:
    """`matmul M 16 x N 64 x K 128, i8 x i8 -> i32`."""
    named = zip("MNK", (row["m"], row["n"], row["k"]), strict=True)
    sizes = " x ".join(f"{letter} {'?' if size is None else size}" for letter, size in named)
    batch = "".join(f"{'?' if b is None else b} x " for b in row["batch"])
    return f"{row['kind']} {batch}{sizes}, {row['lhs']} x {row['rhs']} -> {row['acc']}"


def answer_text(row: AnswerRow) -> str:
    """One answer of `Decision.summary`, in one line: the text of `explain` and of errors."""
    if not row["accepted"]:
        remedy = f" ({row['remedy']})" if row["remedy"] and row["remedy"] != "none needed" else ""
        return f"{row['strategy']}: {row['reason']}{remedy}"
    parts = [f"{row['strategy']}: {facts_text(row['plan'])}", *_times(row)]
    least = "" if row["seconds"] is None else f"at least {seconds_text(row['seconds'])}, "
    return "; ".join([*parts, f"{least}{row['note']}"]).rstrip("; ,")


def _times(row: AnswerRow) -> Iterator[str]:
    """What the cost model says of a plan, in words."""
    if "cost" not in row:
        return
    most = f", most of it {row['bound']}" if row.get("bound") else ""
    yield f"estimated {seconds_text(row['cost'])}{most}"
    if "runner_up" in row:
        name, seconds = row["runner_up"]
        yield f"next {name}, {seconds_text(seconds)}"
    if row.get("assumed"):
        yield f"not known: {', '.join(row['assumed'])}"


def decide(contraction: Contraction, strategies: Sequence[Strategy]) -> tuple[Decision, Plan | None]:
    """Ask `strategies` in order; the first that accepts is chosen, the rest are still asked so that
    `explain` can show the whole list."""
    answers: list[tuple[str, Accept | Decline]] = []
    chosen, plan = "", None
    for strategy in strategies:
        answer = strategy.consider(contraction)
        answers.append((strategy.name, answer))
        if plan is None and isinstance(answer, Accept):
            chosen, plan = strategy.name, answer.plan
    return Decision(contraction, tuple(answers), chosen), plan


def first_accepted(
    about: Contraction, strategies: Iterable[GroupStrategy[_Group]], group: _Group
) -> tuple[Decision, Plan | None]:
    """Ask `strategies` about a group in order, up to the first that accepts."""
    answers: list[tuple[str, Accept | Decline]] = []
    for strategy in strategies:
        answer = strategy.consider(group)
        answers.append((strategy.name, answer))
        if isinstance(answer, Accept):
            return Decision(about, tuple(answers), strategy.name), answer.plan
    return Decision(about, tuple(answers), ""), None
