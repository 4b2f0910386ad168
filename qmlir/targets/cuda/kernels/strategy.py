"""When a kernel of ours takes a contraction. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from ....core.mlir import OpLike, ir
from ....dialect.dtypes import Array
from ....kernels.convolution import describe_convolution
from ....kernels.description import Kernel, Unfit
from ....kernels.emit import integer
from ....kernels.gather_operands import gather_operands
from ....kernels.group import describe
from ....kernels.layouts import by_columns
from ....kernels.order import arranged
from ....kernels.outline import Emit, Scratch, function_of, outline, widest
from ....kernels.routing import scattered, sweep
from ....kernels.row_sums import absorbed, uses_row_sums
from ....kernels.weights import constant_codes
from ...base import Target
from ...cost import Cost
from ...gpu_kernels.executable import KernelFunction
from ...gpu_kernels.route import with_routing
from ...gpu_kernels.strategy import unreadable
from ...gpu_kernels.tile_choice import Tiled
from ...roofline import roofline
from ...strategy import Accept, Choice, Contraction, Decline, Facts, Knob, RunnerUp
from .choose import Chosen, choose, estimate, gemv_for
from .executable import in_a_row
from .gemv import MOST_ROWS, Gemv
from .mma_gemm import MmaGemm
from .tile import TILES, WGMMA_TILES, Tile
from .weights import Storage, packed_constant, storage_for
from .wgmma_gemm import WgmmaGemm

_ROWS_FOR_WGMMA = 48
# Of the kernel that brings rows of experts into blocks; bytes of shared memory that no kernel has to ask for.
_ROUTE_THREADS, _ROUTE_SHARED = 512, 1 << 15


@dataclass(frozen=True)
class CudaKernelPlan:
    """A kernel in the place of the contraction and of what is fused with it."""

    generator: MmaGemm | Gemv
    codes: Array | None  # of a constant weight, [N, K]
    facts: Facts
    target: Target

    def apply(self, op: OpLike) -> None:
        self.outline(self.generator.emit, ())

    def outline(self, emit: Emit, beside: Sequence[CudaKernelPlan]) -> None:
        """See `multi_version.SizedPlan`."""
        made = self.generator
        padded_k = max(plan.generator.padded_k for plan in (self, *beside))

        def rhs() -> ir.Value:
            if self.codes is None:
                return by_columns(made.kernel.rhs)
            return packed_constant(self.codes, made.storage, padded_k)

        function = function_of(made.kernel.operations[0])
        scratch = widest([plan.scratch for plan in (self, *beside)])
        outline(made.kernel, rhs, emit, size_type=integer(32), arrange=arranged, scratch=scratch)
        if made.kernel.batch is not None:
            sweep(function)  # what the kernel reads through

    # ---- see `multi_version.SizedPlan`

    @property
    def kernel(self) -> Kernel:
        return self.generator.kernel

    @property
    def variant(self) -> Hashable:
        return self.generator.variant

    @property
    def storage(self) -> Hashable:
        return "an argument" if self.codes is None else self.generator.storage

    @property
    def scratch(self) -> Scratch | None:
        return self.generator.scratch

    @property
    def most_rows(self) -> int | None:
        return getattr(self.generator, "rows", None)

    def of(self, kernel: Kernel) -> CudaKernelPlan:
        return replace(self, generator=self.generator.of(kernel))

    def cost(self) -> Cost:
        return estimate(self.generator, self.target)

    def function(self, inputs: Sequence[ir.Type], result: ir.Type) -> KernelFunction:
        return self.generator.function(inputs, result)

    def describe(self) -> Facts:
        made = self.generator
        return {
            "route": "kernel",
            **self.facts,
            "threads": made.launch.threads,
            "shared_bytes": made.shared_bytes,
            "weight_bits": made.storage.bits,
            "fused": len(made.kernel.operations) - 1,
        }


def mma_facts(gemm: MmaGemm) -> Facts:
    tile = gemm.tile
    return {
        "mma": f"mma.sync.m16n8k{gemm.step}.{gemm.mma.operand}",
        "tile": [tile.m, tile.n, tile.k],
        "warps": list(tile.warps),
        "stages": tile.stages,
        **({"stream_k": gemm.workgroups} if gemm.workgroups else {}),
        **({"because": gemm.because} if gemm.because else {}),
    }


def _gemv_facts(gemv: Gemv) -> Facts:
    return {"codegen": "dp4a, K shared by lanes", "columns": gemv.block_columns, "k_warps": gemv.k_warps}


@dataclass(frozen=True)
class CudaTiled(Tiled[Tile]):
    """A strategy with tiles of `tile.py`."""

    def no_tile(self, kernel: Kernel, step: int) -> Decline:
        """Why none of the tiles computes `kernel`; `step`: codes along K of the instruction's shortest step."""
        if kernel.batch is not None and all(tile.stream_k for tile in self.tiles):
            return Decline("a batch of products: K is shared by the workgroups of one product", "another tile")
        if kernel.group is not None and step:
            return Decline(
                f"groups of {kernel.group} along K fit no step of an instruction",
                f"a group size of {step} or a multiple",
            )
        return Decline("no tile fits shared memory and registers", "mma.sync has smaller ones")

    def accepted(self, chosen: Chosen, codes: Array | None, facts: Facts, c: Contraction) -> Accept:
        plan = CudaKernelPlan(chosen.gemm, codes, facts, self.target)
        bound = replace(roofline(self.target, c), cost=plan.cost())
        if chosen.next is None:
            return Accept(plan, bound)
        runner_up = RunnerUp(f"tile {chosen.next.tile.name}", estimate(chosen.next, self.target))
        return Accept(plan, replace(bound, runner_up=runner_up))


@dataclass(frozen=True)
class CudaProductStrategy(CudaTiled):
    """What the strategies of products have in common."""

    @property
    def decodes(self) -> bool:
        """Whether weights are made of codes."""
        return False

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        kernel = self.kernel_of(c)
        answer = kernel if isinstance(kernel, Decline) else self.check(kernel, c)
        launch = in_a_row(_ROUTE_THREADS, lambda rows: 1)
        return with_routing(answer, self, c, self.described, launch, _ROUTE_SHARED)

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """See `multi_version.SizedStrategy`."""
        if c.kind != "matmul":
            return Decline(f"a {c.kind}", "write it as a matmul")
        if declined := self.unlike(c):
            return declined
        try:
            kernel = scattered(gather_operands(self.described(c), slots=True).without_counts())
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return _unfit(kernel) or kernel

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """See `multi_version.SizedStrategy`."""
        return self.on_request(kernel) or self.check(kernel, c)

    def described(self, c: Contraction) -> Kernel:
        """The kernel of a contraction.

        Raises:
            Unfit: where it is none.
        """
        return absorbed(describe(c.operation, extended=True).without_gate())

    def unlike(self, c: Contraction) -> Decline | None:
        """A refusal of other types of codes."""
        return _no_int8(c)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether this kind of kernel computes `kernel`."""
        raise NotImplementedError


def _no_int8(c: Contraction) -> Decline | None:
    if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32"):
        return Decline(f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies i8 by i8", "integer codes on both sides")
    if c.op is None:
        return Decline("what is fused with it is not known", "none needed")
    return None


def _unfit(kernel: Kernel) -> Decline | None:
    """What no kernel here computes."""
    if unfit := unreadable(kernel, 1):
        return unfit
    if kernel.batch is not None and kernel.batch.size is None and kernel.batch.index is None:
        return Decline("the size of a batch of products is dynamic", "a static batch")
    codes = constant_codes(kernel)
    if codes is None and kernel.rhs.flipped:
        return Decline("the weight is an argument of unsigned codes", "signed codes, or a constant weight")
    grouped = "g" in kernel.rhs.source_axes or (kernel.rhs.source_axes.count("k") > 1 and kernel.lhs.window is None)
    if codes is None and grouped:
        return Decline("the weight is an argument and has groups", "make the weight a constant or a parameter")
    return None


@dataclass(frozen=True)
class MmaSyncStrategy(CudaProductStrategy):
    """Products of int8 by codes of 8 bits or less on `mma.sync`, exact in i32."""

    name: str = "mma-sync-int8"
    tiles: tuple[Tile, ...] = TILES

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if kernel.n < 8:
            return Decline(f"N is {kernel.n}: fewer columns than one instruction has", "other routes sum along K")
        codes = constant_codes(kernel)
        # Short groups ask for short tiles, whose rows packed codes do not fill.
        storages = dict.fromkeys((storage_for(kernel, codes), Storage()))
        found = (choose(kernel, storage, codes is not None, self.target, self.tiles) for storage in storages)
        chosen = next((chosen for chosen in found if chosen is not None), None)
        if chosen is None:
            return self.no_tile(kernel, 16)
        return self.accepted(chosen, codes, mma_facts(chosen.gemm), c)


@dataclass(frozen=True)
class WgmmaStrategy(MmaSyncStrategy):
    """The same on `wgmma`, which reads both sides from shared memory as they are."""

    name: str = "wgmma-int8"
    tiles: tuple[Tile, ...] = WGMMA_TILES

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if declined := no_wgmma(self.target, kernel):
            return declined
        if kernel.lhs.flipped or uses_row_sums(kernel) or kernel.combine is not None:
            return Decline("codes to flip, sums of rows or groups along K need registers", "mma.sync has them there")
        codes = constant_codes(kernel)
        if storage_for(kernel, codes).bits < 8:
            return Decline("short codes are taken apart in registers", "mma.sync has them there")
        chosen = choose(kernel, Storage(), codes is not None, self.target, self.tiles, WgmmaGemm)
        if chosen is None:
            return self.no_tile(kernel, 0)
        return self.accepted(chosen, codes, {**mma_facts(chosen.gemm), "mma": _wgmma_name(chosen.gemm)}, c)


def no_wgmma(target: Target, kernel: Kernel) -> Decline | None:
    if "wgmma" not in target.capabilities.features:
        return Decline(f"{target.spelling} has no wgmma", "cuda:sm_90a")
    if kernel.m is not None and kernel.m < _ROWS_FOR_WGMMA:
        return Decline(f"{kernel.m} rows leave most of 64 unused", "mma.sync has 16")
    if kernel.n < 64:
        return Decline(f"N is {kernel.n}", "at least 64 columns")
    return None


def _wgmma_name(gemm: MmaGemm) -> str:
    return f"wgmma.m64n{gemm.tile.n}k32.s8"


@dataclass(frozen=True)
class CudaConvolutionStrategy:
    """Convolutions as products whose activation is read from the image: implicit GEMM."""

    matmul: CudaProductStrategy

    @property
    def name(self) -> str:
        return f"{self.matmul.name}-conv"

    def space(self) -> tuple[Knob, ...]:
        return self.matmul.space()

    def program_flags(self, choice: Choice) -> tuple[str, ...]:
        return ()

    def choosing(self, choice: Choice) -> CudaConvolutionStrategy:
        return CudaConvolutionStrategy(self.matmul.choosing(choice))

    def each(self) -> Sequence[CudaConvolutionStrategy]:
        """See `multi_version.SizedStrategy`."""
        return [CudaConvolutionStrategy(matmul) for matmul in self.matmul.each()]

    def consider(self, contraction: Contraction) -> Accept | Decline:
        kernel = self.kernel_of(contraction)
        return kernel if isinstance(kernel, Decline) else self.plan_of(kernel, contraction)

    def kernel_of(self, c: Contraction) -> Kernel | Decline:
        """See `multi_version.SizedStrategy`."""
        if c.kind != "conv2d":
            return Decline(f"a {c.kind}", "a convolution")
        if declined := self.matmul.unlike(c):
            return declined
        try:
            kernel = describe_convolution(c.operation, True, self.matmul.decodes, grouped=True, planes=(False, True))
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return _unfit(kernel) or kernel

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """See `multi_version.SizedStrategy`."""
        answer = self.matmul.plan_of(kernel, c)
        groups = 1 if kernel.lhs.window is None else kernel.lhs.window.groups
        if groups > 1 and isinstance(answer, Decline) and kernel.n // groups % 16:
            return Decline(
                f"groups of {kernel.n // groups} filters do not fill whole tiles", "a multiple of 16 filters"
            )
        return answer


@dataclass(frozen=True)
class GemvStrategy(CudaProductStrategy):
    """Products of a few rows, whose time is that of reading the weight."""

    name: str = "gemv-int8"

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if kernel.m is None:
            return Decline("M is dynamic", "a static M, at most 8")
        if kernel.batch is not None:
            return Decline("a batch of products, each with weights of its own", "tensor cores take it")
        if kernel.m > MOST_ROWS:
            return Decline(f"{kernel.m} rows are enough for tensor cores", "at most 8 rows")
        codes = constant_codes(kernel)
        if codes is None and (kernel.rhs.source_axes != ("n", "k") or kernel.k % 16):
            return Decline("the weight is an argument, not [N, K] with K a multiple of 16", "make it a constant")
        gemv = gemv_for(kernel, storage_for(kernel, codes), self.target)
        if isinstance(gemv, str):
            return Decline(gemv, "tensor cores take it")
        plan = CudaKernelPlan(gemv, codes, _gemv_facts(gemv), self.target)
        return Accept(plan, replace(roofline(self.target, c), cost=plan.cost()))
