"""Products of MXFP8 and MXFP4 on scaled matrix instructions.

CDNA4 multiplies 128 codes of e4m3 or e5m2 along K, with one e8m0 scale for each 32 of them on either side
(`v_mfma_scale_f32_16x16x128_f8f6f4`). IREE maps a contraction to it whose body scales both operands, so the product of
groups and the scaled sum behind it become one such contraction. Codes of e2m1 are numbers of e4m3 too, and are
multiplied as those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.mlir import arith, ir, linalg, tensor
from ...ir.affine import axis_loops, indexing_maps
from ...ir.attributes import iterator_types
from ...ir.barriers import Reason, fusion_barrier
from ...ir.walk import made_by
from ...kernels.computes import e2m1_codes
from ...kernels.group_scales import group_scales
from ..base import Target
from ..roofline import roofline
from ..strategy import Accept, Contraction, Decline, Facts
from ..tensors import elementwise

if TYPE_CHECKING:
    from ...core.mlir import OpLike

BLOCK = 32  # codes of one scale
ROWS = 16  # and columns of a tile
_CODES = ("f8E4M3FN", "f8E5M2")
_SCALE = "f8E8M0FNU"


@dataclass(frozen=True)
class ScaledPlan:
    """One contraction with scaled operands in the place of the product and its sum over groups."""

    total: OpLike  # the op that sums the groups
    scales: tuple[ir.Value, ir.Value]
    codes: tuple[ir.Value, ir.Value]  # `[M, G, 32]` and `[N, G, 32]`, or i8 codes of e2m1 `[M, K]` and `[N, K]`

    def apply(self, op: OpLike) -> None:
        with self.total.location, ir.InsertionPoint(self.total):
            result = contraction(self.codes, self.scales, self.total.operands[len(self.total.operands) - 1], BLOCK)
        self.total.results[0].replace_all_uses_with(result)
        self.total.erase()
        op.erase()

    def describe(self) -> Facts:
        return {"route": "scaled contraction", "mma": "MFMA_SCALE_F32_16x16x128_B32", "block": BLOCK}


@dataclass(frozen=True)
class ScaledStrategy:
    """Products of one-byte or half-byte floats with a scale of powers of two for each 32 codes along K."""

    target: Target
    name: str = "scaled-mma"

    def consider(self, contraction: Contraction) -> Accept | Decline:
        c = contraction
        if not self.target.capabilities.scaled_mma:
            return Decline(f"{self.target.spelling} has no scaled matrix instruction", "none needed")
        known = (c.lhs in _CODES and c.lhs == c.rhs) or (c.lhs, c.rhs) == ("f16", "f16")
        if c.kind != "matmul" or c.acc != "f32" or not known or c.k != BLOCK or len(c.batch) != 1:
            return Decline(f"no product of floats in groups of {BLOCK} along K", "MXFP8 or MXFP4 on both sides")
        if None in c.sizes:
            return Decline("a size is dynamic, and IREE tiles scaled contractions of static sizes only", "static sizes")
        if (c.m or 0) < ROWS or (c.n or 0) < ROWS:
            return Decline(f"{c.m} rows by {c.n} columns: IREE makes vector code of less than a tile", "16 of both")
        if (c.batch[0] or 0) % 4:
            return Decline(
                f"{c.batch[0]} groups are not a multiple of 4, which an instruction takes", "K a multiple of 128"
            )
        scales = group_scales(c.operation)
        if not isinstance(scales, str) and set(scales.elements) != {_SCALE}:
            scales = "a scale is not e8m0"
        if isinstance(scales, str):
            return Decline(scales, "e8m0 scales of both sides, and nothing else in the sum over groups")
        left, right = (_codes(c.operation, i) for i in (0, 1))
        if left is None or right is None:
            return Decline(
                "the operands are not codes `[M, G, 32]` and `[N, G, 32]`", "e4m3, e5m2 or e2m1 on both sides"
            )
        total, lhs, rhs = scales
        return Accept(ScaledPlan(total, (lhs, rhs), (left, right)), roofline(self.target, c))


def _codes(op: OpLike, side: int) -> ir.Value | None:
    """The codes of one side, None where they lie otherwise."""
    lhs, rhs, out = (axis_loops(m) for m in indexing_maps(op))
    g, m, n = out
    if (lhs if side == 0 else rhs)[:2] != [m if side == 0 else n, g] or len(lhs) != 3 or len(rhs) != 3:
        return None
    value = op.operands[side]
    if str(value.type.element_type) in _CODES:
        return value
    # Numbers of e2m1 in f16, that a body makes of codes.
    grouped = made_by(value, "tensor.expand_shape")
    return None if grouped is None else e2m1_codes(grouped.operands[0])


def contraction(codes: Sequence[ir.Value], scales: Sequence[ir.Value], init: ir.Value, block: int) -> ir.Value:
    """`out[m, n] = init[m, n] + sum over g, k of lhs[m, g, k] lhs_scale[m, g] rhs[n, g, k] rhs_scale[n, g]`."""
    lhs, rhs = (_instruction_order(_blocks(value, block)) for value in codes)
    # IREE 3.13 puts a constant of equal scales into the product as a scalar, and then does not use the instruction.
    scales = tuple(fusion_barrier(s, Reason.SPLAT) for s in scales)
    m, n, g, k = (ir.AffineDimExpr.get(i) for i in range(4))
    maps = [ir.AffineMap.get(4, 0, places) for places in ([m, g, k], [n, g, k], [m, g], [n, g], [m, n])]
    op = linalg.GenericOp(
        [init.type], [lhs, rhs, *scales], [init],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(x) for x in maps]),
        iterator_types(["parallel"] * 2 + ["reduction"] * 2),
    )  # fmt: skip
    body = op.regions[0].blocks.append(*(v.type.element_type for v in (lhs, rhs, *scales, init)))
    f32 = ir.F32Type.get()
    with ir.InsertionPoint(body):
        a, b, a_scale, b_scale, total = body.arguments
        left, right = (
            ir.Operation.create("arith.scaling_extf", results=[f32], operands=pair).results[0]
            for pair in ([a, a_scale], [b, b_scale])
        )
        linalg.YieldOp([arith.addf(total, arith.mulf(left, right))])
    return op.results[0]


def _blocks(value: ir.Value, block: int) -> ir.Value:
    """Codes `[rows, G, 32]` of 8 bits; of e2m1, in bytes `[rows, K]`, as e4m3."""
    kind = ir.RankedTensorType(value.type)
    if kind.rank == 3:
        return value
    f8 = ir.Type.parse("f8E4M3FN")
    wide = elementwise(value, f8, _as_e4m3)
    rows, k = kind.shape
    shape = [rows, k // block, block]
    return tensor.expand_shape(ir.RankedTensorType.get(shape, f8), wide, [[0], [1, 2]], [], shape)


def _instruction_order(value: ir.Value) -> ir.Value:
    """Codes `[rows, G, 32]` in the order along K in which the instruction's lanes hold them.

    Of 128 codes of a row, group g of lanes holds two runs of 16, codes 16 g on and 64 + 16 g on: Triton says in
    `chooseScaledMfmaScaleLayout` that codes of one byte are two blocks of 16. IREE 3.13 gives it 32 g to 32 g + 31,
    which is the order of codes of half a byte. The scales are those of blocks of 32 in the order of K either way.
    No other instruction has this order: qmlir-check-scaled-products refuses what is made without it.
    """
    kind = ir.RankedTensorType(value.type)
    rows, groups, block = kind.shape
    runs = [rows, groups // 4, 2, 4, block // 2]
    whole = tensor.collapse_shape(
        ir.RankedTensorType.get([rows, groups * block], kind.element_type), value, [[0], [1, 2]]
    )
    apart = tensor.expand_shape(ir.RankedTensorType.get(runs, kind.element_type), whole, [[0], [1, 2, 3, 4]], [], runs)
    turned = [rows, groups // 4, 4, 2, block // 2]
    moved = linalg.transpose(
        apart, outs=[tensor.empty(turned, kind.element_type)], permutation=[0, 1, 3, 2, 4]
    ).results[0]
    flat = tensor.collapse_shape(
        ir.RankedTensorType.get([rows, groups * block], kind.element_type), moved, [[0], [1, 2, 3, 4]]
    )
    return tensor.expand_shape(
        value.type, fusion_barrier(flat, Reason.MOVED_ONCE), [[0], [1, 2]], [], [rows, groups, block]
    )


def _as_e4m3(code: ir.Value) -> ir.Value:
    """The byte of e4m3 with the value of a code of e2m1: exponents differ by 6, and 0.5, which e2m1 has without a
    leading one, is 2 ** -1."""
    i8 = code.type

    def of(number: int) -> ir.Value:
        return arith.constant(i8, number)

    magnitude = arith.andi(code, of(7))
    sign = arith.shli(arith.andi(code, of(8)), of(4))
    number = arith.addi(arith.shli(magnitude, of(2)), of(6 << 3))
    half = arith.cmpi(arith.CmpIPredicate.eq, magnitude, of(1))
    zero = arith.cmpi(arith.CmpIPredicate.eq, magnitude, of(0))
    number = arith.select(half, of(6 << 3), number)
    number = arith.select(zero, of(0), number)
    return arith.bitcast(ir.Type.parse("f8E4M3FN"), arith.ori(number, sign))
