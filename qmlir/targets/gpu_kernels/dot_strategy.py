"""Whether a dot-product kernel accepts a contraction. Every refusal is here: an accepted kernel can be emitted."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.description import Kernel
from ...kernels.weights import constant_codes
from ..gpu import parse_mma
from ..roofline import kernel_estimate
from ..strategy import Accept, Contraction, Decline
from .dot import DotKernel, WorkSplit
from .plan import accepted, fastest
from .strategy import (
    NOT_CONSTANT,
    NOT_ONE_PRODUCT,
    FixedTile,
    ProductStrategy,
    small_floats,
    unreadable,
    unsupported,
    with_tiles,
)
from .weights import CodeFormat, byte_codes, stored

# The most rows of a cooperative kernel, which computes all of them in one thread; for more, tiles are better.
MOST_ROWS = 8
TILED = WorkSplit(1, 8, 8, 4)
# Numbers of threads that share K of the same outputs in the cooperative form.
_WORKERS = (8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class DotStrategy(ProductStrategy[FixedTile]):
    """Integer products, and products of floats and constant weights of codes, without a matrix instruction.

    Attributes:
        few: the cooperative form, for at most `MOST_ROWS` rows; otherwise tiles of outputs, for any number of rows.
        most_float_rows: the most rows of the cooperative form for float products, for which a target may have a better
            route.
        any_argument: whether weights may be arguments `[K, N]`, or arguments of batches, which no other route of the
            target reads in their stored layout.
    """

    few: bool
    most_float_rows: int = MOST_ROWS
    any_argument: bool = False

    def consider(self, contraction: Contraction) -> Accept | Decline:
        return self._many(contraction) or super().consider(contraction)

    def plan_of(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        return self._many(c) or super().plan_of(kernel, c)

    def _many(self, c: Contraction) -> Decline | None:
        """A Decline if there are too many rows for the cooperative form."""
        most = MOST_ROWS if c.acc == "i32" else self.most_float_rows
        if not self.few or (c.m is not None and c.m <= most) or isinstance(self.unlike(c), Decline):
            return None
        rows = "the number of rows is dynamic" if c.m is None else f"M = {c.m}"
        return Decline(f"{rows}: threads share K for at most {most} rows", "none needed: tiles fit")

    def unlike(self, c: Contraction) -> Decline | None:
        floats = ("f32", "f16", "bf16") if self.machine.bf16_as_bits else ("f32", "f16")
        if (c.lhs, c.rhs, c.acc) == ("i8", "i8", "i32") or (c.acc == "f32" and (c.lhs in floats or small_floats(c))):
            return None
        names = " or ".join(reversed(floats))
        return Decline(
            f"unsupported element types {c.lhs} x {c.rhs} -> {c.acc}",
            f"codes of i8 or one-byte floats on both sides, or {names} by codes",
        )

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        """Whether the kernel can be computed this way."""
        handled = ("i8", "i32", "f32", "f16", *(["bf16"] if self.machine.bf16_as_bits else []))
        if unfit := unreadable(kernel) or unsupported(kernel, handled):
            return unfit
        codes = byte_codes(constant_codes(kernel))
        if codes is None:
            batch, axes = kernel.batch, kernel.rhs.source_axes
            batched = batch is not None and (batch.side_by_side or batch.index is not None or not self.any_argument)
            if kernel.rhs.decode is not None or kernel.rhs.e2m1 or kernel.lhs.window is not None or batched:
                return NOT_CONSTANT
            k_first = axes in (("k", "n"), ("b", "k", "n")) and self.any_argument
            if axes not in (("n", "k"), ("b", "n", "k")) and not k_first:
                return Decline("the weight is an argument that is not [N, K]", "make it a constant, or transpose it")
            weights = CodeFormat(8, 0, next(w for w in (4, 2, 1) if kernel.k % (4 * w) == 0 or w == 1))
        elif (found := stored(codes, kernel, self._most_words(kernel))) is not None:
            weights = found
        else:
            return Decline(f"groups of {kernel.group} along K are not a multiple of 4", "a group size of 4 or more")
        splits = [TILED]
        if self.few:
            assert kernel.m is not None
            splits = [WorkSplit(n, 64 // n, 1, kernel.m) for n in _WORKERS if n <= self.machine.subgroup]
        limit = self.target.capabilities.loop_limit
        made = [
            DotKernel(kernel, self.machine, weights, codes is not None, split, self.name)
            for split in splits
            if limit is None or weights.depth * limit * split.workers >= kernel.k
        ]
        slow, floats = "", str(kernel.acc_type) == "f32"
        if not self.few and floats and any(parse_mma(k).lhs == "f16" for k in self.target.capabilities.mma):
            slow = "IREE makes no f16 cooperative matrix that a device could run"
        tiles = self.tiles or (FixedTile(*TILED.tile),)
        plans = fastest(with_tiles(made, tiles, self.target), codes, self.target, {"slow": slow} if slow else {})
        if made and not plans:
            return NOT_ONE_PRODUCT
        if not plans:
            return Decline(f"K is {kernel.k}: too long for one loop", "a shorter K")
        return accepted(plans, kernel_estimate(self.target, kernel, weights.bits, dot=True))

    def _most_words(self, kernel: Kernel) -> int:
        """The most words of a piece: if the weight is decoded, the piece's activations of all rows are in registers."""
        if kernel.rhs.decode is None:
            return 4
        rows = kernel.m if self.few and kernel.m is not None else 4
        return 4 if rows <= 1 else 2 if rows <= 2 else 1
