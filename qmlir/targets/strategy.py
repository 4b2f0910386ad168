"""The strategy protocol: how a target chooses the compilation of a contraction.

A pass (`qmlir-select`) finds the contractions of a module in linalg form, describes each as a
`Contraction`, and asks the target's strategies in order. Each answers `Accept(plan, estimate)` or
`Decline(reason, remedy)`; the first accepted plan is applied. All answers are kept (`Decision`), so that
errors and `explain` report what was considered and why, in the same words (`answer_text`).

Targets depend on this module and the dialect, never on passes; passes use targets only through this module.
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


# Values of knobs by name, as the tuner chooses them.
Choice: TypeAlias = "Mapping[str, int | str]"


@dataclass(frozen=True)
class Contraction:
    """One linalg contraction or convolution, described without its IR.

    Sizes are `None` if dynamic. For a convolution, M is N*OH*OW, N is the number of filters per group, K is
    KH*KW*C per group, and `batch` has the groups.
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
    # Largest |code| of each integer operand (8 for s4 stored in s8, not 128): bounds the exactness of
    # routes through floating point.
    lhs_magnitude: int = 128
    rhs_magnitude: int = 128
    location: str = ""
    op: OpLike | None = field(default=None, compare=False, repr=False)

    @property
    def operation(self) -> OpLike:
        """The op, if the contraction was found in a program."""
        assert self.op is not None
        return self.op


@dataclass(frozen=True)
class Estimate:
    """Estimates of a plan's time.

    Attributes:
        seconds: a lower bound from shapes if the target has figures, else None.
        note: what the bound is based on.
        cost: the cost model's estimate (`cost.py`), for plans whose kernels it covers.
        runner_up: the strategy's second choice.
    """

    seconds: float | None
    note: str = ""
    cost: Cost | None = None
    runner_up: RunnerUp | None = None


@dataclass(frozen=True)
class RunnerUp:
    """The second choice of a strategy, and its estimated time."""

    name: str
    cost: Cost


class Plan(Protocol):
    """The rewrite that an accepting strategy proposes."""

    def apply(self, op: OpLike) -> None:
        """Change the IR of the contraction `op` (attach `compilation_info`, or rewrite it)."""

    def describe(self) -> Facts:
        """JSON-serialisable facts for the manifest: tile sizes, mma kind, ..."""


@dataclass(frozen=True)
class Accept:
    plan: Plan
    estimate: Estimate


@dataclass(frozen=True)
class Decline:
    reason: str
    remedy: str = ""  # what would make the contraction acceptable
    on_request: bool = False  # the strategy accepts the contraction if it is requested by name


_Taken = TypeVar("_Taken")


def confirmed(answer: _Taken | Decline, strategy: str, contraction: Contraction) -> _Taken:
    """The answer of `strategy` to the form that its own plan has rewritten an accepted contraction to.

    Raises:
        PassError: the answer is a Decline.
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
    """A strategy for a group of operations that is not a contraction: an attention, rows, codes."""

    @property
    def name(self) -> str: ...

    def consider(self, group: _Read, /) -> Accept | Decline: ...


def first_plan(strategies: Iterable[GroupStrategy[_Group]], group: _Group) -> Plan | None:
    """The plan of the first strategy that accepts a group; None if none does."""
    answers = (strategy.consider(group) for strategy in strategies)
    return next((answer.plan for answer in answers if isinstance(answer, Accept)), None)


@dataclass(frozen=True)
class Knob:
    """A parameter of a strategy that can be tuned: JSON-serialisable values, the first of which is the default."""

    name: str
    values: tuple[int | str, ...]


@runtime_checkable
class Tunable(Protocol):
    """A strategy that declares what `qmlir tune` may try. Optional: a strategy without these methods has no knobs."""

    @property
    def name(self) -> str: ...

    def space(self) -> tuple[Knob, ...]:
        """The knobs, for any contraction that the strategy accepts."""

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        """The flags for IREE, for the compilation of the whole program, that a choice implies."""

    def choosing(self, choice: Choice) -> Strategy:
        """The strategy with the choice's values for its own plans; the strategy itself if there are none."""


@runtime_checkable
class OnRequest(Protocol):
    """A strategy that accepts more contractions if it is requested by name. One that departs from the semantics, in a
    documented way, accepts nothing unless requested; one that another strategy usually beats then accepts the cases
    that it leaves to the other. Optional."""

    @property
    def name(self) -> str: ...

    def requested(self) -> Strategy:
        """The strategy as it behaves on request."""


def preferred(strategies: Sequence[Strategy], name: str) -> list[Strategy]:
    """The strategies with the one called `name` first and requested."""
    made = [s.requested() if s.name == name and isinstance(s, OnRequest) else s for s in strategies]
    return sorted(made, key=lambda s: s.name != name)


FIRST = "strategy"  # the knob that every target has: the strategy that is asked before the others
RENAMED = {"by-rows": "multi-version-m"}  # former names of strategies


def saved_choice(choice: Choice) -> dict[str, int | str]:
    """A choice from a file, such as a tuning database, with former names of strategies replaced."""
    return {name: RENAMED.get(str(value), value) if name == FIRST else value for name, value in choice.items()}


def current_name(strategy: str) -> str:
    """The current name of a strategy that a user names; warns about a former name."""
    if strategy not in RENAMED:
        return strategy
    new = RENAMED[strategy]
    warnings.warn(f"strategy {strategy!r} is deprecated: use {new!r}", DeprecationWarning, stacklevel=caller())
    return new


def current_choice(choice: Choice) -> dict[str, int | str]:
    """A user's choice with the current names of strategies; warns about former names."""
    return {name: current_name(str(value)) if name == FIRST else value for name, value in choice.items()}


def chosen_strategies(strategies: Sequence[Strategy], choice: Choice) -> list[Strategy]:
    """The strategies with a choice applied; the one that it names under `strategy` comes first.

    Raises:
        UsageError: a knob, a value or a strategy does not exist.
    """
    knobs: dict[str, tuple[int | str, ...]] = {FIRST: tuple(s.name for s in strategies)}
    for strategy in strategies:
        if isinstance(strategy, Tunable):
            for k in strategy.space():  # strategies that share a knob may have different values
                knobs[k.name] = tuple(dict.fromkeys((*knobs.get(k.name, ()), *k.values)))
    for name, value in choice.items():
        if value not in knobs.get(name, ()):
            near = did_you_mean(str(value), map(str, knobs[name])) if name in knobs else did_you_mean(name, knobs)
            raise UsageError(f"unknown choice {name} = {value!r}{near}")
    made = [s.choosing(choice) if isinstance(s, Tunable) else s for s in strategies]
    return preferred(made, str(choice[FIRST])) if FIRST in choice else made


def choice_text(choice: Choice) -> str:
    """A choice as the text of an option of `qmlir-select`: `chunk_rows:48|strategy:stock`."""
    return "|".join(f"{name}:{value}" for name, value in sorted(choice.items()))


def parse_choice(text: str) -> dict[str, int | str]:
    """Parse the text of a choice; numerals become integers.

    Raises:
        UsageError: a part is not `name:value`.
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
    """The answers of all strategies for one contraction; `chosen` is empty if all declined."""

    contraction: Contraction
    answers: tuple[tuple[str, Accept | Decline], ...]
    chosen: str

    def summary(self) -> DecisionRow:
        """The decision as a JSON-serialisable row, for the manifest and for `explain`."""
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
    """A time as text, such as `12.3 us`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def shape_text(row: DecisionRow) -> str:
    """A contraction as text, such as `matmul M 16 x N 64 x K 128, i8 x i8 -> i32`."""
    named = zip("MNK", (row["m"], row["n"], row["k"]), strict=True)
    sizes = " x ".join(f"{letter} {'?' if size is None else size}" for letter, size in named)
    batch = "".join(f"{'?' if b is None else b} x " for b in row["batch"])
    return f"{row['kind']} {batch}{sizes}, {row['lhs']} x {row['rhs']} -> {row['acc']}"


def answer_text(row: AnswerRow) -> str:
    """One answer of `Decision.summary` as one line, for `explain` and errors."""
    if not row["accepted"]:
        remedy = f" ({row['remedy']})" if row["remedy"] and row["remedy"] != "none needed" else ""
        return f"{row['strategy']}: {row['reason']}{remedy}"
    parts = [f"{row['strategy']}: {facts_text(row['plan'])}", *_times(row)]
    least = "" if row["seconds"] is None else f"at least {seconds_text(row['seconds'])}, "
    return "; ".join([*parts, f"{least}{row['note']}"]).rstrip("; ,")


def _times(row: AnswerRow) -> Iterator[str]:
    """The cost model's estimates of a plan as text."""
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
    """Ask all `strategies` in order and choose the first that accepts. The rest are asked for `explain`, which shows
    the whole list."""
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
    """Ask `strategies` about a group in order, up to the first that accepts it."""
    answers: list[tuple[str, Accept | Decline]] = []
    for strategy in strategies:
        answer = strategy.consider(group)
        answers.append((strategy.name, answer))
        if isinstance(answer, Accept):
            return Decision(about, tuple(answers), strategy.name), answer.plan
    return Decision(about, tuple(answers), ""), None
