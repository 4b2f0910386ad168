"""Make a contraction's sizes multiples of what a device's matrix path wants, and its layout plain.

IREE's SPIR-V code generation handles whole tiles of plain layouts only: a ragged size falls back to one
thread per element, and a batch dim that is not the outermost of its operand (K groups) stops the compiler
("no GPU subgroup mma compute ops generated"). So pad with zeros, which add nothing to a sum, and permute;
the result is permuted and cut back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..strategy import Contraction


def fitting_block(size: int, unit: int, most: int = 64) -> int:
    """The largest power-of-two multiple of `unit` that pads `size` by little more than `unit` itself does:
    bigger blocks are better tiles."""
    floor = -(-size // unit) * unit
    block = most
    while block > unit and -(-size // block) * block > floor * 9 // 8:
        block //= 2
    return block


@dataclass(frozen=True)
class AlignedPlan:
    """`blocks[d]` is the size that iteration dim `d` becomes a multiple of (1: left alone)."""

    contraction: Contraction
    blocks: tuple[int, ...]
    codegen: str

    def apply(self, op: Any) -> None:
        from .._mlir import ir
        from .align import aligned

        with ir.InsertionPoint(op):
            result = aligned(op, self.contraction, self.blocks)
        op.results[0].replace_all_uses_with(result)
        op.erase()

    def describe(self) -> Mapping[str, Any]:
        return {"route": "aligned", "blocks": list(self.blocks), "codegen": self.codegen}
