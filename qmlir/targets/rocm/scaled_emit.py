"""The IR of `scaled`: a contraction whose body scales both operands."""

from __future__ import annotations

from typing import Any

from ..._mlir import arith, ir, linalg, tensor
from ..tensors import barrier, elementwise


def contraction(codes: tuple[Any, Any], scales: tuple[Any, Any], init: Any, block: int) -> Any:
    """`out[m, n] = init[m, n] + sum over g, k of lhs[m, g, k] lhs_scale[m, g] rhs[n, g, k] rhs_scale[n, g]`."""
    lhs, rhs = (_instruction_order(_blocks(value, block)) for value in codes)
    m, n, g, k = (ir.AffineDimExpr.get(i) for i in range(4))
    maps = [ir.AffineMap.get(4, 0, places) for places in ([m, g, k], [n, g, k], [m, g], [n, g], [m, n])]
    kinds = [ir.Attribute.parse(f"#linalg.iterator_type<{x}>") for x in ["parallel"] * 2 + ["reduction"] * 2]
    op = linalg.GenericOp(
        [init.type], [lhs, rhs, *scales], [init],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(x) for x in maps]), ir.ArrayAttr.get(kinds),
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


def _blocks(value: Any, block: int) -> Any:
    """Codes `[rows, G, 32]` of 8 bits; of e2m1, in bytes `[rows, K]`, as e4m3."""
    kind = ir.RankedTensorType(value.type)
    if kind.rank == 3:
        return value
    f8 = ir.Type.parse("f8E4M3FN")
    wide = elementwise(value, f8, _as_e4m3)
    rows, k = kind.shape
    shape = [rows, k // block, block]
    return tensor.expand_shape(ir.RankedTensorType.get(shape, f8), wide, [[0], [1, 2]], [], shape)


def _instruction_order(value: Any) -> Any:
    """Codes `[rows, G, 32]` in the order along K in which the instruction's lanes hold them.

    Of 128 codes of a row, group g of lanes holds two runs of 16, codes 16 g on and 64 + 16 g on (Composable Kernel's
    pipelines for MX types; Triton's comment on `chooseScaledMfmaScaleLayout`). IREE 3.13 gives it 32 g to 32 g + 31,
    which is the order of codes of half a byte. The scales are those of blocks of 32 in the order of K either way.
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
    return tensor.expand_shape(value.type, barrier(flat), [[0], [1, 2]], [], [rows, groups, block])


def _as_e4m3(code: Any) -> Any:
    """The byte of e4m3 with the value of a code of e2m1: exponents differ by 6, and 0.5, which e2m1 has without a
    leading one, is 2 ** -1."""
    i8 = code.type

    def of(number: int) -> Any:
        return arith.constant(i8, number)

    magnitude = arith.andi(code, of(7))
    sign = arith.shli(arith.andi(code, of(8)), of(4))
    number = arith.addi(arith.shli(magnitude, of(2)), of(6 << 3))
    half = arith.cmpi(arith.CmpIPredicate.eq, magnitude, of(1))
    zero = arith.cmpi(arith.CmpIPredicate.eq, magnitude, of(0))
    number = arith.select(half, of(6 << 3), number)
    number = arith.select(zero, of(0), number)
    return arith.bitcast(ir.Type.parse("f8E4M3FN"), arith.ori(number, sign))
