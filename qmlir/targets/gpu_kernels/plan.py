"""The plan that replaces a contraction by a kernel, and the choice between several kernels."""

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
from .stream_k import on_request_only
from .tiled import TiledKernel

_SHARED_K_LIMIT = 0.9  # workgroups share K only if the time is less than this part of the time without


@dataclass(frozen=True)
class GpuKernelPlan:
    """Replace the contraction, and the ops that are fused with it, by a kernel.

    Attributes:
        made: the kernel's generator.
        codes: the codes `[N, K]` of a constant weight; None: the weight is read in the program's layout.
        facts: facts of the kernel for the manifest, which is written when the IR no longer exists.
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
        """The memory that the kernel needs in addition to its operands."""
        sharing = self.made.sharing
        return None if sharing is None else sharing.scratch(self.kernel)

    @property
    def fits(self) -> bool:
        """Whether the target has enough shared memory for a workgroup of the kernel."""
        return self.made.shared_bytes <= self.target.capabilities.shared_memory

    def of(self, kernel: Kernel) -> GpuKernelPlan:
        """See `TiledKernel.of`."""
        return replace(self, made=self.made.of(kernel))

    def cost(self) -> Cost:
        """The estimated time."""
        f = Figures(self.target.capabilities)
        return f.cost(self.made.work(self.target, f))

    def apply(self, op: OpLike) -> None:
        """See `strategy.Plan`."""
        self.outline(lambda name, inputs, result: executable(name, self.made.function(inputs)), ())

    def outline(self, emit: Emit, siblings: Sequence[GpuKernelPlan]) -> None:
        """Replace the group by a dispatch of the executable that `emit` makes. The plans `siblings` read the same
        weight."""
        scratch = widest([plan.scratch for plan in (self, *siblings)])
        function = function_of(self.kernel.operations[0])

        def weight() -> ir.Value:
            return self.made.weight(self.codes, max(plan.made.padded_k for plan in (self, *siblings)))

        outline(self.kernel, weight, emit, size_type=e.integer(32), arrange=arranged, scratch=scratch)
        if self.kernel.batch is not None:
            sweep(function)  # ops that the kernel has made unused, such as gathers

    def describe(self) -> Facts:
        """See `strategy.Plan`."""
        return self.facts

    def described(self) -> GpuKernelPlan:
        """The plan with all facts filled in."""
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
    """Plans for kernels of one product, the fastest first, equally fast ones in their order. Kernels whose workgroups
    share K come first only if that is much faster. If K may be shared on request only, they are used only if there are
    no others."""
    found: dict[bool, list[tuple[float, float, TiledKernel]]] = {False: [], True: []}
    for made in kernels:
        f = Figures(target.capabilities)
        work = made.work(target, f)
        seconds = float(f"{work.compute:.9g}")  # equal work stays equal
        # No kernel is faster than its memory traffic.
        least = max(work.compute, work.memory / f.bandwidth) if work.memory else work.compute
        found[made.sharing is not None].append((seconds, least, made))
    whole, shared = (sorted(found[kind], key=itemgetter(0)) for kind in (False, True))
    every, why = whole or shared, ""
    if whole and shared:
        reason, times = on_request_only(whole[0][2].kernel, target), (whole[0][1], shared[0][1])
        pays = times[1] < _SHARED_K_LIMIT * times[0] and not reason
        first, other = (shared, whole) if pays else (whole, [] if reason else shared)
        every = [first[0], *sorted((*first[1:], *other), key=itemgetter(0))]
        hows = ("if each block has all of K", "if K is shared")
        text = " and ".join(f"{1e6 * t:.1f} us {how}" for t, how in zip(times, hows, strict=True))
        why = f"estimated: {text}" + (f"; {reason}" if reason else "")
    more = {**(facts or {}), **({"because": why} if why else {})}
    return [GpuKernelPlan(made, codes, target, more) for *_, made in every]


def accepted(plans: Sequence[GpuKernelPlan], bound: Estimate) -> Accept:
    """Accept the first of the plans, with `bound` as the lower bound of its time; the second is the runner-up."""
    plan, *others = plans
    bound = replace(bound, cost=plan.cost())
    if others:
        bound = replace(bound, runner_up=RunnerUp(f"tile {others[0].made.name}", others[0].cost()))
    return Accept(plan.described(), bound)
