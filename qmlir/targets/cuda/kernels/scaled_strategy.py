"""When a kernel on instructions with scales of blocks along K takes a product, and how its operands are made ready.

Codes of e2m1 are packed, two in a byte, and take the sign of their scale with them, for scales of NVFP4 are numbers
without one to the instruction. Scales are words of four along K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ....core.mlir import arith, ir, tensor
from ....dialect.dtypes import Array
from ....ir.build import bitcast
from ....kernels.description import COLUMN, GROUP, ROW, Factor, Kernel, Operand
from ....kernels.group_scales import GroupScales, group_scales
from ....kernels.weights import constant_codes, known
from ...gpu_kernels.plan import GpuKernelPlan
from ...gpu_kernels.weights import CodeFormat
from ...strategy import Accept, Contraction, Decline, Facts
from ...tensors import generic, merge, pad_end, sizes_of, split, type_of
from .fp8 import KINDS
from .scaled_gemm import SCALES_PER_WORD, ScaledGemm, words_of
from .scaled_instructions import SCALED, ScaledMma
from .strategy import CudaProductStrategy
from .tile import TILES, Tile

if TYPE_CHECKING:
    from ....core.mlir import OpLike

_SCALES = {"f8E8M0FNU": "ue8m0", "f8E4M3FN": "ue4m3"}
_SIGNED = "ue4m3"  # MLIR's type has a sign
_FORMATS = "MXFP8, MXFP4 or NVFP4 on both sides"
# Words of scales are in registers beside the sums, and ptxas 12.9 spills some of 16 x 128.
_TILES = tuple(
    tile
    for tile in TILES
    if tile.accumulators <= 64 and tile.threads < 512 and (tile.m, tile.n) != (16, 128) and not tile.stream_k
)


@dataclass(frozen=True)
class CudaScaledPlan:
    """A kernel in the place of a product in groups and of their sum."""

    inner: GpuKernelPlan
    instruction: ScaledMma
    scales: tuple[ir.Value, Array]  # of the activation, `[M, G]`, and of the weight, `[N, G]`

    def apply(self, op: OpLike) -> None:
        kernel = self.inner.kernel
        last = kernel.operations[-1]
        with last.location, ir.InsertionPoint(last):
            lhs, words = kernel.lhs, _words(self.scales[0])
            if self.instruction.code_bits == 4:
                lhs = Factor(_packed(lhs.value, self.scales[0], self.instruction), ("m", "k"))
            weight_words = _constant_words(self.scales[1])
        scales = (Operand(words, (ROW, GROUP)), Operand(weight_words, (COLUMN, GROUP)))
        ready = replace(kernel, lhs=lhs, scales=scales)
        self.inner.of(ready).apply(op)

    def describe(self) -> Facts:
        return self.inner.describe()


@dataclass(frozen=True)
class ScaledMmaStrategy(CudaProductStrategy):
    """Products of small floats with a scale for each block along K, on instructions that take both."""

    name: str = "mma-sync-scaled"
    tiles: tuple[Tile, ...] = _TILES

    doubles_e2m1 = True

    def unlike(self, c: Contraction) -> Decline | None:
        if not self.target.capabilities.scaled_mma:
            return Decline(f"{self.target.spelling} has no matrix instruction with scales of blocks", "cuda:sm_120a")
        if c.acc != "f32":
            return Decline(f"unsupported: a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", _FORMATS)
        return None

    def check(self, kernel: Kernel, c: Contraction) -> Accept | Decline:
        if kernel.batch is not None:
            return Decline("a batch of products", "one weight for all rows")
        scales = group_scales(c.operation)
        if isinstance(scales, str):
            return Decline(scales, f"{_FORMATS}, and nothing else in the sum over groups")
        instruction = _instruction(kernel, scales)
        if instruction is None:
            lhs, rhs = _types(kernel)
            of = f"{' and '.join(dict.fromkeys(scales.elements))} for {kernel.group} codes"
            return Decline(f"no instruction takes {lhs} x {rhs} with a scale of {of}", _FORMATS)
        codes, weight_scales = constant_codes(kernel), known(scales.rhs)
        if codes is None or weight_scales is None:
            return Decline("the weight or its scales are not constants", "constants, or parameters that are baked in")
        whole = replace(
            kernel, k=kernel.k * instruction.code_bits // 8, acc_type=ir.F32Type.get(), group=None, fraction=None,
            combine=None, total_type=None,
            scales=(Operand(scales.lhs, (ROW, GROUP)), Operand(scales.rhs, (COLUMN, GROUP))),
        )  # fmt: skip

        def fit(kernel: Kernel, tile: Tile, storage: CodeFormat) -> Tile | None:
            return tile if words_of(instruction, tile) else None

        weight, make = _weight(codes, weight_scales, instruction), partial(ScaledGemm, instruction=instruction)
        answer = self.tiled(whole, c, weight, make, fit, step=0)
        if isinstance(answer, Decline):
            return answer
        assert isinstance(answer.plan, GpuKernelPlan)
        return replace(answer, plan=CudaScaledPlan(answer.plan, instruction, (scales.lhs, weight_scales)))


def _types(kernel: Kernel) -> Sequence[str]:
    """PTX's names of the codes of both sides, MLIR's where it has none."""
    sides = (kernel.lhs, kernel.rhs)
    elements = [str(side.value.type.element_type) for side in sides]
    return ["e2m1" if side.e2m1 else KINDS.get(x, x) for side, x in zip(sides, elements, strict=True)]


def _instruction(kernel: Kernel, scales: GroupScales) -> ScaledMma | None:
    """The row of the table that multiplies such codes and scales."""
    wanted = (*_types(kernel), *(_SCALES.get(x) for x in scales.elements), kernel.group)
    return next((i for i in SCALED if (i.lhs_kind, i.rhs_kind, i.scale, i.scale, i.block) == wanted), None)


def _weight(codes: Array, scales: Array, instruction: ScaledMma) -> Array:
    """The bytes `[N, K]`, or of two codes each `[N, K / 2]`."""
    if instruction.code_bits == 8:
        return codes.view(np.int8)
    nibbles = codes.view(np.uint8) & 15
    if instruction.scale == _SIGNED:
        signs = np.ascontiguousarray(scales).view(np.uint8) >> 4 & 8
        nibbles = nibbles ^ np.repeat(signs, instruction.block, axis=1)
    return (nibbles[:, ::2] | nibbles[:, 1::2] << 4).view(np.int8)


def _constant_words(scales: Array) -> ir.Value:
    """Scales `[N, G]` as words `[N, G / 4]`, behind the last one zeros."""
    codes = np.ascontiguousarray(scales).view(np.uint8)
    codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % SCALES_PER_WORD)))
    words = np.ascontiguousarray(codes).view(np.int32)
    kind = ir.RankedTensorType.get(words.shape, ir.IntegerType.get_signless(32))
    return arith.constant(kind, ir.DenseElementsAttr.get(words, type=kind))


def _words(scales: ir.Value) -> ir.Value:
    """The same of scales that are not known."""
    groups = type_of(scales).get_dim_size(1)
    codes = pad_end(_as(scales, groups, 8), 1, -groups % SCALES_PER_WORD)
    return _as(codes, -(-groups // SCALES_PER_WORD), 32)


def _packed(codes: ir.Value, scales: ir.Value, instruction: ScaledMma) -> ir.Value:
    """Codes of e2m1 `[M, K]`, one in a byte, as bytes of two `[M, K / 2]`."""
    groups, pairs = type_of(scales).get_dim_size(1), instruction.block // 2
    inputs = [split(_as(codes, groups * pairs, 16), 1, groups, pairs)]
    maps = [ir.AffineMap.get_identity(3)]
    if instruction.scale == _SIGNED:
        inputs.append(_as(scales, groups, 8))
        maps.append(ir.AffineMap.get(3, 0, list(maps[0].results)[:2]))
    i8, i16 = (ir.IntegerType.get_signless(bits) for bits in (8, 16))

    def of(number: int) -> ir.Value:
        return arith.constant(i16, number)

    def body(pair: ir.Value, *others: ir.Value) -> ir.Value:
        for scale in others[:-1]:  # its sign is its highest bit, a code's its fourth
            sign = arith.andi(arith.shrui(arith.extui(i16, scale), of(4)), of(8))
            pair = arith.xori(pair, arith.ori(sign, arith.shli(sign, of(8))))
        low, high = arith.andi(pair, of(15)), arith.andi(arith.shrui(pair, of(4)), of(0xF0))
        return arith.trunci(i8, arith.ori(low, high))

    out = tensor.empty([sizes_of(codes)[0], groups, pairs], i8)
    return merge(generic(inputs, out, [*maps, maps[0]], ["parallel"] * 3, body), 1)


def _as(value: ir.Value, columns: int, bits: int) -> ir.Value:
    """The same memory `[M, columns]` as integers."""
    return bitcast(value, [sizes_of(value)[0], columns], ir.IntegerType.get_signless(bits))
