"""A kernel in the place of a contraction, and which of several kernels it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from ...core.mlir import OpLike, ir
from ...dialect.dtypes import Array
from ...kernels.description import Kernel
from ...kernels.order import arranged
from ...kernels.outline import Emit, Scratch, function_of, outline, widest
from ...kernels.routing import sweep
from ..base import Target
from ..cost import Cost, Figures
from ..strategy import Accept, Estimate, Facts, RunnerUp
from . import emit as e
from .executable import executable
from .stream_k import in_order
from .tiled import TiledKernel

_WORTH = 0.9  # of the time, for which workgroups share K


@dataclass(frozen=True)
class GpuKernelPlan:
    """A kernel in the place of the contraction and of what is fused with it.

    Attributes:
        made: what emits it.
        codes: of a constant weight, `[N, K]`; None: read as the program has it.
        facts: of it for the manifest, which is written when the program is no longer there to be asked.
    """

    made: TiledKernel
    codes: Array | None
    target: Target
    facts: Facts = field(default_factory=dict)

    @property
    def kernel(self) -> Kernel:
        return self.made.kernel

    @property
    def scratch(self) -> Scratch | None:
        """What the kernel needs beside its operands."""
        sharing = self.made.sharing
        return None if sharing is None else sharing.scratch(self.kernel)

    @property
    def fits(self) -> bool:
        """Whether a workgroup has the shared memory that the kernel uses."""
        return self.made.shared_bytes <= self.target.capabilities.shared_memory

    def of(self, kernel: Kernel) -> GpuKernelPlan:
        """See `TiledKernel.of`."""
        return replace(self, made=self.made.of(kernel))

    def cost(self) -> Cost:
        """About how long it takes."""
        f = Figures(self.target.capabilities)
        return f.cost(self.made.work(self.target, f))

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        self.outline(lambda name, inputs, result: executable(name, self.made.function(inputs)), ())

    def outline(self, emit: Emit, siblings: Sequence[GpuKernelPlan]) -> None:
        """Put what `emit` makes in the place of the group. The plans `siblings` read its weight too."""
        scratch = widest([plan.scratch for plan in (self, *siblings)])
        function = function_of(self.kernel.operations[0])

        def weight() -> ir.Value:
            return self.made.weight(self.codes, max(plan.made.padded_k for plan in (self, *siblings)))

        outline(self.kernel, weight, emit, size_type=e.integer(32), arrange=arranged, scratch=scratch)
        if self.kernel.batch is not None:
            sweep(function)  # what the kernel reads through

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return self.facts

    def described(self) -> GpuKernelPlan:
        """The plan with all facts."""
        made, sharing = self.made, self.made.sharing
        facts: Facts = {
            "route": "kernel",
            **made.facts,
            "threads": made.threads,
            **({"shared_bytes": made.shared_bytes} if made.shared_bytes else {}),
            **({"stream_k": sharing.workgroups} if sharing is not None else {}),
            "fused": len(self.kernel.operations) - 1,
            **self.facts,
        }
        return replace(self, facts=facts)


def fastest(
    kernels: Iterable[TiledKernel], codes: Array | None, target: Target, facts: Facts | None = None
) -> list[GpuKernelPlan]:
    """Plans of kernels of one product, the fastest first, equally fast ones in their order. Workgroups share K only
    where that pays by far, and where parts may be shared on request only (`in_order`) only if all of the kernels do."""
    found: dict[bool, list[tuple[float, float, TiledKernel]]] = {False: [], True: []}
    for made in kernels:
        f = Figures(target.capabilities)
        work = made.work(target, f)
        seconds = float(f"{work.compute:.9g}")  # equal work stays equal
        # Neither is faster than memory is.
        least = max(work.compute, work.memory / f.bandwidth) if work.memory else work.compute
        found[made.sharing is not None].append((seconds, least, made))
    whole, shared = (sorted(found[kind], key=itemgetter(0)) for kind in (False, True))
    every, why = whole or shared, ""
    if whole and shared:
        ordered, times = in_order(whole[0][2].kernel), (whole[0][1], shared[0][1])
        pays = times[1] < _WORTH * times[0] and not ordered
        first, other = (shared, whole) if pays else (whole, [] if ordered else shared)
        every = [first[0], *sorted((*first[1:], *other), key=itemgetter(0))]
        hows = ("if each block has all of K", "if K is shared")
        text = " and ".join(f"{1e6 * t:.1f} us {how}" for t, how in zip(times, hows, strict=True))
        why = f"estimated: {text}" + "; groups are added up in their order" * ordered
    more = {**(facts or {}), **({"because": why} if why else {})}
    return [GpuKernelPlan(made, codes, target, more) for *_, made in every]


def accepted(plans: Sequence[GpuKernelPlan], bound: Estimate) -> Accept:
    """The first of the plans, whose time is bounded; the second is what would have been chosen next."""
    plan, *others = plans
    bound = replace(bound, cost=plan.cost())
    if others:
        bound = replace(bound, runner_up=RunnerUp(f"tile {others[0].made.name}", others[0].cost()))
    return Accept(plan.described(), bound)
