"""Products by matrix instructions that take a scale for each block along K, and the preparation of their operands.

e2m1 codes are packed two per byte and multiplied by the sign of their scale, because the instruction reads NVFP4 scales
as unsigned. K is counted in bytes, so that two e2m1 codes count as one. Scales are words of four along K.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from ...core.mlir import arith, ir, tensor
from ...dialect.dtypes import Array
from ...ir.build import bitcast
from ...kernels.description import COLUMN, GROUP, ROW, Factor, Kernel, Operand
from ...kernels.group_scales import group_scales
from ...kernels.weights import constant_codes, known
from ..base import Target
from ..strategy import Accept, Contraction, Decline, Facts
from ..tensors import generic, merge, pad_end, sizes_of, split, type_of
from .plan import GpuKernelPlan

if TYPE_CHECKING:
    from ...core.mlir import OpLike

SCALES_PER_WORD = 4
KINDS = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
_SCALES = {"f8E8M0FNU": "ue8m0", "f8E4M3FN": "ue4m3"}
_SIGNED = "ue4m3"  # unsigned for the instruction, but MLIR's type has a sign


class ScaledInstruction(Protocol):
    """An instruction: a row of a target's table."""

    @property
    def lhs_kind(self) -> str:
        """The format of codes: e4m3, e5m2, e2m1."""

    @property
    def rhs_kind(self) -> str: ...

    @property
    def scale(self) -> str:
        """The format of scales: ue8m0, ue4m3."""

    @property
    def block(self) -> int:
        """Codes per scale."""

    @property
    def code_bits(self) -> int:
        """Bits of a code."""


_Instruction = TypeVar("_Instruction", bound=ScaledInstruction)


@dataclass(frozen=True)
class ScaledPlan:
    """Replace a product in groups along K, and the sum over groups, by a kernel."""

    inner: GpuKernelPlan
    instruction: ScaledInstruction
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
        self.inner.of(replace(kernel, lhs=lhs, scales=scales)).apply(op)

    def describe(self) -> Facts:
        return self.inner.describe()


@dataclass(frozen=True)
class ScaledProduct(Generic[_Instruction]):
    """A product by an instruction.

    Attributes:
        kernel: the kernel over all of K; the instruction computes the sum over groups.
        weight: the weight's bytes, `[N, K]`.
    """

    instruction: _Instruction
    kernel: Kernel
    weight: Array
    scales: tuple[ir.Value, Array]

    def accepted(self, answer: Accept | Decline) -> Accept | Decline:
        """The answer for the kernel, with a plan that also prepares the operands."""
        if isinstance(answer, Decline):
            return answer
        assert isinstance(answer.plan, GpuKernelPlan)
        return replace(answer, plan=ScaledPlan(answer.plan, self.instruction, self.scales))


def lacks_scaled(target: Target, c: Contraction) -> Decline | None:
    """A Decline if the target has no such instruction, or if the sum is not f32."""
    if not target.capabilities.scaled_mma:
        return Decline(f"{target.spelling} has no matrix instruction with block scales", "another target")
    if c.acc != "f32":
        return Decline(f"unsupported: a {c.kind} of {c.lhs} x {c.rhs} -> {c.acc}", "small floats with scales of blocks")
    return None


def scaled_product(
    kernel: Kernel, c: Contraction, table: Iterable[_Instruction]
) -> ScaledProduct[_Instruction] | Decline:
    """The product of codes with a scale for each block along K, by the instruction of `table` that multiplies them."""
    formats = "MXFP8, MXFP4 or NVFP4 on both sides, as far as the target has them"
    if kernel.batch is not None:
        return Decline("a batch of products", "one weight for all rows")
    scales = group_scales(c.operation)
    if isinstance(scales, str):
        return Decline(scales, f"{formats}, and nothing else in the sum over groups")
    sides = (kernel.lhs, kernel.rhs)
    elements = [str(side.value.type.element_type) for side in sides]
    lhs, rhs = ("e2m1" if side.e2m1 else KINDS.get(x, x) for side, x in zip(sides, elements, strict=True))
    wanted = (lhs, rhs, *(_SCALES.get(x) for x in scales.elements), kernel.group)
    rows = (i for i in table if (i.lhs_kind, i.rhs_kind, i.scale, i.scale, i.block) == wanted)
    if (instruction := next(rows, None)) is None:
        of = f"{' and '.join(dict.fromkeys(scales.elements))} for {kernel.group} codes"
        return Decline(f"no instruction takes {lhs} x {rhs} with a scale of {of}", formats)
    codes, weight_scales = constant_codes(kernel), known(scales.rhs)
    if codes is None or weight_scales is None:
        return Decline("the weight or its scales are not constants", "constants, or parameters that are baked in")
    weight = _weight(codes, weight_scales, instruction)
    whole = replace(
        kernel, k=weight.shape[1], acc_type=ir.F32Type.get(), group=None, fraction=None, combine=None, total_type=None,
        scales=(Operand(scales.lhs, (ROW, GROUP)), Operand(scales.rhs, (COLUMN, GROUP))),
    )  # fmt: skip
    return ScaledProduct(instruction, whole, weight, (scales.lhs, weight_scales))


def _weight(codes: Array, scales: Array, instruction: ScaledInstruction) -> Array:
    """The weight's bytes `[N, K]`, or `[N, K / 2]` with two codes per byte."""
    if instruction.code_bits == 8:
        return codes.view(np.int8)
    nibbles = codes.view(np.uint8) & 15
    if instruction.scale == _SIGNED:
        signs = np.ascontiguousarray(scales).view(np.uint8) >> 4 & 8
        nibbles = nibbles ^ np.repeat(signs, instruction.block, axis=1)
    return (nibbles[:, ::2] | nibbles[:, 1::2] << 4).view(np.int8)


def _constant_words(scales: Array) -> ir.Value:
    """Scales `[N, G]` as words `[N, G / 4]`, padded with zeros."""
    codes = np.ascontiguousarray(scales).view(np.uint8)
    codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % SCALES_PER_WORD)))
    words = np.ascontiguousarray(codes).view(np.int32)
    kind = ir.RankedTensorType.get(words.shape, ir.IntegerType.get_signless(32))
    return arith.constant(kind, ir.DenseElementsAttr.get(words, type=kind))


def _words(scales: ir.Value) -> ir.Value:
    """As `_constant_words`, for scales that are not constant."""
    groups = type_of(scales).get_dim_size(1)
    codes = pad_end(_as(scales, groups, 8), 1, -groups % SCALES_PER_WORD)
    return _as(codes, -(-groups // SCALES_PER_WORD), 32)


def _packed(codes: ir.Value, scales: ir.Value, instruction: ScaledInstruction) -> ir.Value:
    """Pack e2m1 codes `[M, K]`, one per byte, to `[M, K / 2]` with two per byte."""
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
        for scale in others[:-1]:  # a scale's sign is bit 7, a code's sign is bit 3
            sign = arith.andi(arith.shrui(arith.extui(i16, scale), of(4)), of(8))
            pair = arith.xori(pair, arith.ori(sign, arith.shli(sign, of(8))))
        low, high = arith.andi(pair, of(15)), arith.andi(arith.shrui(pair, of(4)), of(0xF0))
        return arith.trunci(i8, arith.ori(low, high))

    out = tensor.empty([sizes_of(codes)[0], groups, pairs], i8)
    return merge(generic(inputs, out, [*maps, maps[0]], ["parallel"] * 3, body), 1)


def _as(value: ir.Value, columns: int, bits: int) -> ir.Value:
    """Bitcast a tensor to `[M, columns]` integers of `bits` bits."""
    return bitcast(value, [sizes_of(value)[0], columns], ir.IntegerType.get_signless(bits))
