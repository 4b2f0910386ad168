"""Several kernels of one product whose number of rows is known at run time only.

The target's strategies are asked for kernels for M = 1, 2, 4, .., in the same order as for a static M. Of the kernels
that read the same packed weight, a few are chosen such that for every number of rows one of them is about as fast as
the best. Each becomes a function of one executable, and the host launches the one for the actual number of rows
(`executable.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log

from ...core.mlir import OpLike, ir
from ...kernels.description import Kernel
from ...kernels.weights import codes_read_once
from ..cost import Cost
from ..strategy import Accept, Choice, Contraction, Decline, Estimate, Fact, Facts, Knob
from .executable import executable
from .plan import GpuKernelPlan
from .strategy import NamedTile, ProductStrategy

SAMPLES = tuple(1 << i for i in range(14))  # numbers of rows that kernels are compared at
_MOST_IMAGES = 8  # samples for a convolution
_TYPICAL = 512  # rows whose time is the plan's estimate when choices are compared
_MOST_FUNCTIONS = 4
# The cost of a further function, for the time that it takes to compile and load, as a sum over the samples of the
# logarithm of the slowdown without it.
_FUNCTION_COST = 0.25
# Estimates are not exact: the strategy that the target asks first is chosen if it is slower by at most this factor.
_PREFERRED = 1.3


@dataclass(frozen=True)
class Variant:
    """A plan and the name of its strategy."""

    strategy: str
    plan: GpuKernelPlan


@dataclass(frozen=True)
class MultiVersionPlan:
    """Plans of one kernel, each with the most rows that it is used for, in ascending order, None for the last."""

    variants: tuple[tuple[int | None, Variant], ...]

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        plans = [variant.plan for _, variant in self.variants]
        bounds = [most for most, _ in self.variants if most is not None]

        def emit(name: str, inputs: Sequence[ir.Type], result: ir.Type) -> str:
            first, *more = [plan.made.function(inputs) for plan in plans]
            return executable(name, first, *zip(bounds, more, strict=True))

        plans[0].outline(emit, plans[1:])

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        facts: dict[str, Fact] = {"route": "kernel"}
        above = 0
        for most, variant in self.variants:
            rows = "any number of rows" if not above else f"more than {above} rows"
            if most is not None:
                rows = f"up to {most} rows" if not above else f"{above + 1} to {most} rows"
                above = most
            said = {name: fact for name, fact in variant.plan.describe().items() if name != "route"}
            facts[rows] = {"strategy": variant.strategy, **said}
        return facts


@dataclass(frozen=True)
class MultiVersionStrategy:
    """Products with a dynamic number of rows, by kernels that `strategies` plan for static numbers of rows."""

    strategies: tuple[ProductStrategy[NamedTile], ...]
    name: str = "multi-version-m"

    def space(self) -> tuple[Knob, ...]:
        """See `strategy.Tunable`: there are no knobs in addition to those of `strategies`."""
        return ()

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        return ()

    def choosing(self, choice: Choice) -> MultiVersionStrategy:
        return replace(self, strategies=tuple(strategy.choosing(choice) for strategy in self.strategies))

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if c.m is not None:
            return Decline("the number of rows is static", "none needed")
        if c.op is None:
            return Decline("the ops that are fused with it are not known", "none needed")
        described = [(strategy, strategy.kernel_of(c)) for strategy in self.strategies]
        asked = [(strategy, kernel) for strategy, kernel in described if not isinstance(kernel, Decline)]
        if not asked:
            return next(reason for _, reason in reversed(described) if isinstance(reason, Decline))
        kernel = asked[0][1]
        if kernel.m is not None or (kernel.batch is not None and not kernel.side_by_side):
            return Decline("a batch of products that all have the same number of rows", "none needed")

        with codes_read_once():
            return _Choice(c, asked, _samples(kernel)).made()


def _samples(kernel: Kernel) -> list[int]:
    """The numbers of rows that kernels are compared at; for a convolution those of whole images."""
    window = kernel.lhs.window
    return [*SAMPLES] if window is None else [window.result[0] * window.result[1] * i for i in SAMPLES[:_MOST_IMAGES]]


@dataclass(frozen=True)
class _Choice:
    """The choice of kernels for a contraction, from the plans that strategies make for the samples."""

    contraction: Contraction
    asked: Sequence[tuple[ProductStrategy[NamedTile], Kernel]]
    samples: Sequence[int]

    def made(self) -> Accept | Decline:
        answers = [list(self._answers(rows)) for rows in self.samples]
        found = [[v for v in row if isinstance(v, Variant)] for row in answers]
        kernels = {strategy.name: kernel for strategy, kernel in self.asked}

        def fits(variant: Variant) -> bool:
            """Whether shared memory suffices for a dynamic number of rows too, which may need more of it."""
            return variant.plan.of(kernels[variant.strategy]).fits

        every = [v for v in self._every() if fits(v)]
        many = [v for v in (*found[-1], *every) if v.plan.made.most_rows is None and fits(v)]
        if not many:
            return next(v for v in reversed(answers[-1]) if isinstance(v, Decline))
        # Many rows are the most work, so the kernel for them decides the packing of the weight and the layout of the
        # other operands (an image may be transposed first) for all kernels.
        packing, read = many[0].plan.made.packing, kernels[many[0].strategy]

        def fit(variants: Iterable[Variant]) -> list[Variant]:
            return [v for v in variants if v.plan.made.packing == packing and kernels[v.strategy] == read and fits(v)]

        fitting = [*(fit(row) for row in found[:-1]), fit(found[-1]) or many[:1]]
        able = itertools.chain(*fitting, fit(every))
        candidates = list({(v.strategy, v.plan.made.name): v for v in able}.values())
        costs = [[self._cost(v, i, fitting[i]) for i in range(len(self.samples))] for v in candidates]
        chosen = partition(costs)
        bounds = [*(self.samples[end - 1] for end, _ in chosen[:-1]), None]
        variants = [replace(v, plan=v.plan.of(kernels[v.strategy])) for v in (candidates[i] for _, i in chosen)]
        typical = sum(rows < _TYPICAL for rows in self.samples[:-1])
        variant = candidates[next(i for end, i in chosen if typical < end)]
        cost = self._asked_cost(variant, typical)
        note = f"a size is dynamic, the estimate of {self.samples[typical]} rows"
        return Accept(MultiVersionPlan(tuple(zip(bounds, variants, strict=True))), Estimate(None, note, cost))

    def _every(self) -> Iterator[Variant]:
        """All plans that strategies could choose for many rows."""
        choices = [(each, kernel) for strategy, kernel in self.asked for each in strategy.each()]
        answers = replace(self, asked=choices)._answers(self.samples[-1])
        return (answer for answer in answers if isinstance(answer, Variant))

    def _answers(self, rows: int) -> Iterator[Variant | Decline]:
        """The answer of each strategy, in order, for a static number of rows."""
        for strategy, kernel in self.asked:
            answer = strategy.plan_of(replace(kernel, m=rows), replace(self.contraction, m=rows))
            # Skip plans that are possible for a static number of rows only.
            if isinstance(answer, Accept) and isinstance(answer.plan, GpuKernelPlan):
                yield Variant(strategy.name, answer.plan)
            elif isinstance(answer, Decline):
                yield answer

    def _cost(self, variant: Variant, sample: int, asked: Sequence[Variant]) -> float:
        """The estimated time of a plan at a sample, which may differ from the number of rows that it was made for."""
        rows, most = self.samples[sample], variant.plan.made.most_rows
        other = bool(asked) and variant.strategy != asked[0].strategy
        # For many rows the first strategy is always used: estimates of different strategies are not comparable enough.
        if (most is not None and rows > most) or (other and sample == len(self.samples) - 1):
            return inf
        cost = self._asked_cost(variant, sample).seconds
        return cost * _PREFERRED if other else cost

    def _asked_cost(self, variant: Variant, sample: int) -> Cost:
        kernel = next(kernel for strategy, kernel in self.asked if strategy.name == variant.strategy)
        return variant.plan.of(replace(kernel, m=self.samples[sample])).cost()


def partition(costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Assign candidates to runs of samples, as `(end, candidate)` in order of the samples, by `costs` of each candidate
    at each sample. Minimises the sum over all samples of the logarithm of the slowdown against the sample's best
    candidate, plus `_FUNCTION_COST` for each run."""
    count = len(costs[0])
    best = [min(row[i] for row in costs) for i in range(count)]
    loss = [[log(row[i] / best[i]) if row[i] < inf else inf for i in range(count)] for row in costs]
    # For each number of functions, and of samples that they are used for: the loss, and the choice.
    known: list[dict[int, tuple[float, list[tuple[int, int]]]]] = [{0: (0.0, [])}]
    for _ in range(_MOST_FUNCTIONS):
        row: dict[int, tuple[float, list[tuple[int, int]]]] = {}
        for start, (before, chosen) in known[-1].items():
            for candidate, losses in enumerate(loss):
                total = before + _FUNCTION_COST
                for end in range(start + 1, count + 1):
                    total += losses[end - 1]
                    if total < row.get(end, (inf, []))[0]:
                        row[end] = total, [*chosen, (end, candidate)]
        known.append(row)
    return min((row[count] for row in known if count in row), key=lambda found: found[0])[1]
