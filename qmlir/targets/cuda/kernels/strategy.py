"""When a kernel of ours takes a contraction. Every refusal is here; what is accepted can be emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....strategy import Accept, Contraction, Decline
from ...base import Target
from ...roofline import roofline

if TYPE_CHECKING:
    from ....dialect.dtypes import Array
    from ....kernels.description import Kernel
    from .mma_gemm import MmaGemm


@dataclass(frozen=True)
class KernelPlan:
    """A kernel in the place of the contraction and of what is fused with it."""

    gemm: MmaGemm
    codes: Array | None  # of a constant weight, [N, K]

    def apply(self, op: Any) -> None:
        from ...._mlir import ir
        from ....kernels.emit import integer
        from ....kernels.outline import outline
        from .operands import arranged
        from .weights import packed_constant, transposed

        kernel = self.gemm.kernel
        last = kernel.operations[-1]
        with last.location, ir.InsertionPoint(last):
            if self.codes is not None:
                rhs = packed_constant(self.codes, self.gemm.storage, self.gemm.padded_k)
            else:
                rhs = transposed(kernel.rhs.value, kernel.rhs.source_axes)
        outline(kernel, rhs, self.gemm.emit, size_type=integer(32), arrange=arranged)

    def describe(self) -> Mapping[str, Any]:
        gemm, tile = self.gemm, self.gemm.tile
        return {
            "route": "kernel",
            "mma": f"mma.sync.m16n8k{gemm.step}.s8",
            "tile": [tile.m, tile.n, tile.k],
            "warps": list(tile.warps),
            "threads": tile.threads,
            "stages": tile.stages,
            "shared_bytes": gemm.shared_bytes,
            "weight_bits": gemm.storage.bits,
            "fused": len(gemm.kernel.operations) - 1,
        }


@dataclass(frozen=True)
class MmaSyncStrategy:
    """Products of int8 by codes of 8 bits or less on `mma.sync`, exact in i32."""

    target: Target
    units: int
    name: str = "mma-sync-int8"

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
            kernel = absorbed(describe(c.op).without_gate())
        except Unfit as unfit:
            return Decline(unfit.reason, unfit.remedy)
        return self.check(kernel, c)

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether a tile computes `kernel`."""
        from .choose import Machine, choose
        from .weights import Storage, constant_codes, storage_for

        if kernel.batch is not None:
            return Decline("a batch of products, each with weights of its own", "one weight for all rows")
        if kernel.n < 8:
            return Decline(f"N is {kernel.n}: fewer columns than one instruction has", "other routes sum along K")
        if sum(size is None for size in kernel.row_sizes) > 1:
            return Decline("more than one axis of the rows is dynamic", "at most one dynamic axis")
        if kernel.lhs.source_axes[-1] != "k" or set(kernel.lhs.source_axes) - {"m", "g", "k"}:
            return Decline("K is not the last axis of the activation", "an activation [M, K]")
        codes = constant_codes(kernel)
        if codes is None and kernel.rhs.flipped:
            return Decline("the weight is an argument of unsigned codes", "signed codes, or a constant weight")
        if codes is None and kernel.rhs.source_axes not in (("n", "k"), ("k", "n")):
            return Decline("the weight is an argument and has groups", "make the weight a constant or a parameter")
        machine = Machine(self.units, self.target.shared_memory)
        # Short groups ask for short tiles, whose rows packed codes do not fill.
        storages = dict.fromkeys((storage_for(codes, kernel.rhs.magnitude), Storage()))
        found = (choose(kernel, storage, codes is not None, self.target, machine) for storage in storages)
        gemm = next((gemm for gemm in found if gemm is not None), None)
        if gemm is None:
            return Decline(
                f"groups of {kernel.group} along K fit no step of an instruction", "a group size of 16 or a multiple"
            )
        return Accept(KernelPlan(gemm, codes), roofline(self.target, c))
