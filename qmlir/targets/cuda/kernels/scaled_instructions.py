"""The table of tensor core instructions that multiply codes with one scale per block along K.

A row is an instruction; strategies, kernels, `qmlir inspect --layout` and the documentation read it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....core.mlir import ir
from ....kernels.tile.instruction import Fragments
from ....kernels.tile.layout import Layout
from .instructions import FRAGMENTS, RESULT, Multiply, of_sums

# Lanes with the scales (PTX ISA, "Warp-level block scaling"), with thread-id 0: in each quad the first two lanes hold
# the scales of A, the first lane those of B.
_ROW_SCALES, _COLUMN_SCALES = "m3 . m0 m1 m2", ". . n0 n1 n2"


def _scaled(fragments: Fragments, blocks: int) -> Fragments:
    """The fragments with `blocks` scales along K, a power of two."""
    value = " ".join(f"s{i}" for i in range(blocks.bit_length() - 1))
    return replace(fragments, a_scale=Layout.of(lane=_ROW_SCALES, value=value),
                   b_scale=Layout.of(lane=_COLUMN_SCALES, value=value))  # fmt: skip


# Two e2m1 codes share a byte (PTX ISA, "Matrix fragments for mma.m16n8k64").
_E2M1 = Fragments(Layout.of(lane="k3 k4 m0 m1 m2", value="k0 k1 k2 m3 k5"),
                  Layout.of(lane="k3 k4 n0 n1 n2", value="k0 k1 k2 k5"), RESULT)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScaledMma(Multiply):
    """`mma.sync` on codes with one scale per block along K: a row of the table below.

    A register holds four scales along K, of which one instruction takes as many as it has blocks, from byte `first` on.
    Operands are words of codes, followed by the word of scales.
    """

    kind: str  # PTX's name of the kind
    scale: str  # PTX's name of the type of scales
    first: int = 0

    @property
    def depth(self) -> int:
        """Bytes along K: codes of half a byte are counted in pairs."""
        return 32

    @property
    def rate(self) -> str:
        return "i8"  # bytes are multiplied as fast as 8-bit integers, even with two codes per byte

    @property
    def block(self) -> int:
        """Codes per scale."""
        return self.fragments.shape[2] // self.fragments.blocks

    @property
    def code_bits(self) -> int:
        """Bits of a code."""
        return 8 * self.depth // self.fragments.shape[2]

    @property
    def name(self) -> str:
        vector = f"{self.fragments.blocks}X"
        return f"mma.sync.m16n8k{self.fragments.shape[2]}.{self.kind}.{vector}.{self.operand}.{self.scale}"

    def __call__(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        """`acc[m, n] += lhs[m, k] * lhs_scale[m, k / block] * rhs[n, k] * rhs_scale[n, k / block]`."""
        kinds = f"f32.{self.lhs_kind}.{self.rhs_kind}.f32.{self.scale}"
        shape = f"m16n8k{self.fragments.shape[2]}.row.col.kind::{self.kind}"
        places = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$9, $10}, {$12, $13, $14, $15}"
        chosen = f"{{{self.first}, 0}}"
        text = (
            f"mma.sync.aligned.{shape}.block_scale.scale_vec::{self.fragments.blocks}X.{kinds} {places}, "
            f"$8, {chosen}, $11, {chosen};"
        )
        return of_sums(text, [*lhs, *rhs], acc)


# RTX Blackwell (PTX ISA 8.7): MXFP8, MXFP4, NVFP4. In the sum of an instruction's products the tensor core keeps at
# least as many bits as for f16: 25 fractional bits of the largest product, 35 for e2m1 (Xie et al., MMA-Sim, arXiv
# 2511.10909, which was compared with the device).
SCALED = (
    *(ScaledMma(a, b, _scaled(FRAGMENTS[32, 8], 1), kind="mxf8f6f4", scale="ue8m0")
      for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    ScaledMma("e2m1", "e2m1", _scaled(_E2M1, 2), kind="mxf4nvf4", scale="ue8m0"),
    ScaledMma("e2m1", "e2m1", _scaled(_E2M1, 4), kind="mxf4nvf4", scale="ue4m3"),
)  # fmt: skip
