"""When a kernel of ours takes a contraction. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ....strategy import Accept, Contraction, Decline, Strategy
from ...base import Target
from ...roofline import roofline
from .tile import FLOAT_TILES, TILES, Tile

if TYPE_CHECKING:
    from ....dialect.dtypes import Array
    from ....kernels.description import Kernel
    from .gemv import Gemv
    from .mma_gemm import MmaGemm


@dataclass(frozen=True)
class KernelPlan:
    """A kernel in the place of the contraction and of what is fused with it."""

    generator: MmaGemm | Gemv
    codes: Array | None  # of a constant weight, [N, K]
    facts: Mapping[str, Any]

    def apply(self, op: Any) -> None:
        from ...._mlir import ir
        from ....kernels.emit import integer
        from ....kernels.outline import outline
        from .operands import arranged
        from .weights import packed_constant, transposed

        made = self.generator
        last = made.kernel.operations[-1]
        with last.location, ir.InsertionPoint(last):
            if self.codes is not None:
                rhs = packed_constant(self.codes, made.storage, made.padded_k)
            else:
                rhs = transposed(made.kernel.rhs.value, made.kernel.rhs.source_axes)
        outline(made.kernel, rhs, made.emit, size_type=integer(32), arrange=arranged)

    def describe(self) -> Mapping[str, Any]:
        made = self.generator
        return {
            "route": "kernel",
            **self.facts,
            "threads": made.launch.threads,
            "shared_bytes": made.shared_bytes,
            "weight_bits": made.storage.bits,
            "fused": len(made.kernel.operations) - 1,
        }


def _mma_facts(gemm: MmaGemm) -> Mapping[str, Any]:
    tile = gemm.tile
    return {
        "mma": f"mma.sync.m16n8k{gemm.step}.{gemm.mma.operand}",
        "tile": [tile.m, tile.n, tile.k],
        "warps": list(tile.warps),
        "stages": tile.stages,
    }


def _gemv_facts(gemv: Gemv) -> Mapping[str, Any]:
    return {"codegen": "dp4a, K shared by lanes", "columns": gemv.block_columns, "k_warps": gemv.k_warps}


@dataclass(frozen=True)
class IntegerStrategy:
    """What the strategies of integer products have in common."""

    target: Target
    units: int

    def consider(self, contraction: Contraction) -> Accept | Decline:
        from ....kernels.description import Unfit
        from ....kernels.group import describe
        from ....kernels.row_sums import absorbed

        c = contraction
        if c.kind != "matmul":
            return Decline(f"a {c.kind}", "write it as a matmul")
        if (c.lhs, c.rhs, c.acc) != ("i8", "i8", "i32"):
            return Decline(
                f"{c.lhs} x {c.rhs} -> {c.acc}: the kernel multiplies i8 by i8", "integer codes on both sides"
            )
        if c.op is None:
            return Decline("what is fused with it is not known", "none needed")
        try:
            kernel = absorbed(describe(c.op))
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return _unfit(kernel) or self.check(kernel, c)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether this kind of kernel computes `kernel`."""
        raise NotImplementedError


def _unfit(kernel: Kernel) -> Decline | None:
    """What no kernel here computes."""
    from .weights import constant_codes

    if sum(size is None for size in kernel.row_sizes) > 1:
        return Decline("more than one axis of the rows is dynamic", "at most one dynamic axis")
    if kernel.lhs.source_axes[-1] != "k" or set(kernel.lhs.source_axes) - {"m", "g", "k"}:
        return Decline("K is not the last axis of the activation", "an activation [M, K]")
    codes = constant_codes(kernel)
    if codes is None and kernel.rhs.flipped:
        return Decline("the weight is an argument of unsigned codes", "signed codes, or a constant weight")
    if codes is None and kernel.rhs.source_axes not in (("n", "k"), ("k", "n")):
        return Decline("the weight is an argument and has groups", "make the weight a constant or a parameter")
    return None


@dataclass(frozen=True)
class MmaSyncStrategy(IntegerStrategy):
    """Products of int8 by codes of 8 bits or less on `mma.sync`, exact in i32."""

    name: str = "mma-sync-int8"
    tiles: tuple[Tile, ...] = TILES

    def variants(self) -> Mapping[str, Strategy]:
        return {tile.name: replace(self, tiles=(tile,)) for tile in self.tiles}

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        from .choose import Machine, choose
        from .weights import Storage, constant_codes, storage_for

        if kernel.n < 8:
            return Decline(f"N is {kernel.n}: fewer columns than one instruction has", "other routes sum along K")
        codes = constant_codes(kernel)
        machine = Machine(self.units, self.target.shared_memory)
        # Short groups ask for short tiles, whose rows packed codes do not fill.
        storages = dict.fromkeys((storage_for(codes, kernel.rhs.magnitude), Storage()))
        found = (choose(kernel, storage, codes is not None, self.target, machine, self.tiles) for storage in storages)
        gemm = next((gemm for gemm in found if gemm is not None), None)
        if gemm is None:
            return Decline(
                f"groups of {kernel.group} along K fit no step of an instruction", "a group size of 16 or a multiple"
            )
        return Accept(KernelPlan(gemm, codes, _mma_facts(gemm)), roofline(self.target, c))


@dataclass(frozen=True)
class GemvStrategy(IntegerStrategy):
    """Products of a few rows, whose time is that of reading the weight."""

    name: str = "gemv-int8"

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        from .choose import gemv_for
        from .gemv import MOST_ROWS
        from .weights import constant_codes, storage_for

        if kernel.m is None:
            return Decline("M is dynamic", "a static M, at most 8")
        if kernel.m > MOST_ROWS:
            return Decline(f"{kernel.m} rows are enough for tensor cores", "at most 8 rows")
        codes = constant_codes(kernel)
        if codes is None and (kernel.rhs.source_axes != ("n", "k") or kernel.k % 16):
            return Decline("the weight is an argument, not [N, K] with K a multiple of 16", "make it a constant")
        gemv = gemv_for(kernel, storage_for(codes, kernel.rhs.magnitude), self.units, self.target.shared_memory)
        if isinstance(gemv, str):
            return Decline(gemv, "tensor cores take it")
        return Accept(KernelPlan(gemv, codes, _gemv_facts(gemv)), roofline(self.target, c))


@dataclass(frozen=True)
class WeightOnlyStrategy:
    """16-bit floats by a constant weight of codes, decoded in registers."""

    target: Target
    units: int
    name: str = "mma-sync-weight-only"
    tiles: tuple[Tile, ...] = FLOAT_TILES

    def variants(self) -> Mapping[str, Strategy]:
        return {tile.name: replace(self, tiles=(tile,)) for tile in self.tiles}

    def consider(self, contraction: Contraction) -> Accept | Decline:
        from ....kernels.description import Unfit
        from ....kernels.group import describe

        c = contraction
        if c.kind != "matmul" or c.acc != "f32" or c.lhs not in ("f16", "bf16") or c.rhs != c.lhs:
            return Decline(f"a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "a matmul of f16 or bf16 by codes")
        if c.op is None:
            return Decline("what makes its weight is not known", "none needed")
        try:
            kernel = describe(c.op)
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return _unfit(kernel) or self.check(kernel, c)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether a tile computes `kernel`."""
        from .choose import Machine, choose
        from .weights import constant_codes, storage_for_halves

        if kernel.n < 8:
            return Decline(f"N is {kernel.n}: fewer columns than one instruction has", "other routes sum along K")
        codes = constant_codes(kernel)
        if codes is None:
            return Decline("the weight is no constant", "make the weight a constant, or a parameter that is baked in")
        machine = Machine(self.units, self.target.shared_memory)
        gemm = choose(kernel, storage_for_halves(codes), True, self.target, machine, self.tiles)
        if gemm is None:
            return Decline(
                f"groups of {kernel.group} along K fit no step of an instruction", "a group size of 32 or a multiple"
            )
        return Accept(KernelPlan(gemm, codes, _mma_facts(gemm)), roofline(self.target, c))
